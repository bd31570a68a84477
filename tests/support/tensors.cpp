// tensors.cpp: test inputs, test runs and bitwise comparison.
#include "support/tensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>

#include "checkvalve/backend.h"
#include "checkvalve/error.h"
#include "numerics/element.h"

namespace checkvalve::test {
namespace {

void fill_normal(HostTensor& t, std::mt19937_64& random, double factor) {
  std::normal_distribution<double> normal;
  for (std::int64_t b = 0; b < t.view.shape[0]; ++b) {
    for (std::int64_t s = 0; s < t.view.shape[1]; ++s) {
      for (std::int64_t h = 0; h < t.view.shape[2]; ++h) {
        for (std::int64_t d = 0; d < t.view.shape[3]; ++d) {
          t.set(b, s, h, d, normal(random) * factor);
        }
      }
    }
  }
}

template <typename F>
void for_each_element(HostTensor& t, F&& update) {
  for (std::int64_t b = 0; b < t.view.shape[0]; ++b) {
    for (std::int64_t s = 0; s < t.view.shape[1]; ++s) {
      for (std::int64_t h = 0; h < t.view.shape[2]; ++h) {
        for (std::int64_t d = 0; d < t.view.shape[3]; ++d) {
          t.set(b, s, h, d, update(s, d, t.at(b, s, h, d)));
        }
      }
    }
  }
}

void shape_data(Inputs& in, Data data) {
  switch (data) {
    case Data::kGauss:
      return;
    case Data::kOutliers:
      for_each_element(in.k, [](std::int64_t, std::int64_t d, double x) { return d % 17 == 3 ? x * 20.0 : x; });
      for_each_element(in.v, [](std::int64_t, std::int64_t d, double x) { return d % 23 == 5 ? x * 32.0 : x; });
      return;
    case Data::kTokenRange:
      for_each_element(
          in.v, [](std::int64_t s, std::int64_t, double x) { return std::ldexp(x, static_cast<int>(s * 7 % 17) - 8); });
      return;
    case Data::kSink: {
      const double strong = 8.0;
      for_each_element(in.q, [&](std::int64_t, std::int64_t d, double x) { return d == 0 ? strong : x; });
      for_each_element(in.k,
                       [&](std::int64_t s, std::int64_t d, double x) { return d == 0 ? (s == 0 ? strong : 0.0) : x; });
      for_each_element(in.v, [](std::int64_t s, std::int64_t, double x) { return s == 0 ? std::ldexp(x, -6) : x; });
      return;
    }
    case Data::kNegative:
      for_each_element(in.q, [](std::int64_t, std::int64_t, double x) { return std::fabs(x) + 1.0; });
      for_each_element(in.k, [](std::int64_t, std::int64_t, double x) { return -std::fabs(x) - 1.0; });
      return;
  }
}

}  // namespace

double HostTensor::at(std::int64_t i0, std::int64_t i1, std::int64_t i2, std::int64_t i3) const {
  return numerics::load_element(view, numerics::offset_of(view, i0, i1, i2, i3));
}

void HostTensor::set(std::int64_t i0, std::int64_t i1, std::int64_t i2, std::int64_t i3, double value) {
  numerics::store_element(view, numerics::offset_of(view, i0, i1, i2, i3), value);
}

void HostTensor::poison() { std::memset(storage.data(), 0xFF, storage.size()); }

HostTensor make_attention_tensor(DType dtype, Layout layout, std::int64_t b, std::int64_t s, std::int64_t h,
                                 std::int64_t d) {
  HostTensor t;
  t.storage.resize(static_cast<std::size_t>(b * s * h * d) * size_of(dtype) + 1);  // data() is never null
  t.view = make_view(static_cast<void*>(t.storage.data()), dtype, layout, b, s, h, d);
  return t;
}

HostTensor make_dense_tensor(DType dtype, std::vector<std::int64_t> shape) {
  HostTensor t;
  std::array<std::int64_t, kMaxRank> sizes{};
  std::copy(shape.begin(), shape.end(), sizes.begin());
  t.view = make_dense(static_cast<void*>(nullptr), dtype, static_cast<int>(shape.size()), sizes);
  t.storage.resize(static_cast<std::size_t>(t.view.numel()) * size_of(dtype) + 1);
  t.view.data = t.storage.data();
  return t;
}

HostTensor clone(const HostTensor& t) {
  HostTensor copy = t;
  const auto* base = t.storage.data();
  copy.view.data = copy.storage.data() + (static_cast<const std::byte*>(t.view.data) - base);
  return copy;
}

std::string name_of(Data data) {
  switch (data) {
    case Data::kGauss:
      return "gauss";
    case Data::kOutliers:
      return "outliers";
    case Data::kTokenRange:
      return "token_range";
    case Data::kSink:
      return "sink";
    case Data::kNegative:
      return "negative";
  }
  return "?";
}

std::string to_string(const Case& c) {
  return fmt::format("b{}_hq{}_hkv{}_sq{}_skv{}_dqk{}_dv{}_{}_l{}_w{}_{}_{}_seed{}", c.b, c.h_q, c.h_kv, c.s_q, c.s_kv,
                     c.d_qk, c.d_v, name_of(c.dtype), static_cast<int>(c.layout),
                     c.window_left < 0 ? std::string("none") : std::to_string(c.window_left),
                     c.causal ? "causal" : "full", name_of(c.data), c.seed);
}

Inputs make_inputs(const Case& c) {
  Inputs in;
  in.q = make_attention_tensor(c.dtype, c.layout, c.b, c.s_q, c.h_q, c.d_qk);
  in.k = make_attention_tensor(c.dtype, c.layout, c.b, c.s_kv, c.h_kv, c.d_qk);
  in.v = make_attention_tensor(c.dtype, c.layout, c.b, c.s_kv, c.h_kv, c.d_v);
  in.d_out = make_attention_tensor(c.dtype, c.layout, c.b, c.s_q, c.h_q, c.d_v);
  std::mt19937_64 random(c.seed);
  for (HostTensor* t : {&in.q, &in.k, &in.v, &in.d_out}) {
    fill_normal(*t, random, 1.0);
  }
  shape_data(in, c.data);
  in.problem = problem_of(in.q.view, in.k.view, in.v.view);
  in.problem.causal = c.causal;
  in.problem.window_left = c.window_left;
  in.problem.out_dtype = DType::kFloat32;
  return in;
}

Results run(const Inputs& in, const Recipe& recipe, Options options, Passes passes, DeltaFrom delta) {
  AttentionProblem p = in.problem;
  options.allow_leak = true;
  const auto like = [&p](const HostTensor& t, std::int64_t d) {
    return make_attention_tensor(p.out_dtype, Layout::kBshd, t.view.shape[0], t.view.shape[1], t.view.shape[2], d);
  };
  Results r{.out = like(in.q, p.d_v),
            .lse = p.packed() ? make_dense_tensor(DType::kFloat32, {p.h_q, p.total_q})
                              : make_dense_tensor(DType::kFloat32, {p.b, p.h_q, p.s_q}),
            .dq = like(in.q, p.d_qk),
            .dk = like(in.k, p.d_qk),
            .dv = like(in.v, p.d_v),
            .report = {}};
  for (HostTensor* t : {&r.out, &r.lse, &r.dq, &r.dk, &r.dv}) {
    t->poison();
  }
  r.report = forward(p, recipe, in.q.view, in.k.view, in.v.view, r.out.view, r.lse.view, options);
  if (passes == Passes::kForwardBackward) {
    const ConstTensorView out = delta == DeltaFrom::kOutput ? ConstTensorView(r.out.view) : ConstTensorView{};
    backward(p, recipe, in.q.view, in.k.view, in.v.view, out, r.lse.view, in.d_out.view, r.dq.view, r.dk.view,
             r.dv.view, options);
  }
  return r;
}

std::vector<std::string> host_backends(const AttentionProblem& problem, const Recipe& recipe) {
  Options options;
  options.allow_leak = true;
  std::vector<std::string> names;
  for (const BackendVerdict& verdict : explain(problem, recipe, options)) {
    if (verdict.reasons.empty()) {
      names.push_back(verdict.name);
    }
  }
  return names;
}

std::string first_difference(const HostTensor& a, const HostTensor& b, int dim, std::int64_t begin, std::int64_t end) {
  const std::size_t bytes = size_of(a.view.dtype);
  std::array<std::int64_t, kMaxRank> extent{1, 1, 1, 1};
  std::array<std::int64_t, kMaxRank> start{};
  for (int i = 0; i < a.view.rank; ++i) {
    extent[static_cast<std::size_t>(i)] = a.view.shape[static_cast<std::size_t>(i)];
  }
  start[static_cast<std::size_t>(dim)] = begin;
  extent[static_cast<std::size_t>(dim)] = end;
  for (std::int64_t i0 = start[0]; i0 < extent[0]; ++i0) {
    for (std::int64_t i1 = start[1]; i1 < extent[1]; ++i1) {
      for (std::int64_t i2 = start[2]; i2 < extent[2]; ++i2) {
        for (std::int64_t i3 = start[3]; i3 < extent[3]; ++i3) {
          const auto at = [&](const HostTensor& t) {
            return static_cast<const std::byte*>(t.view.data) +
                   numerics::offset_of(t.view, i0, i1, i2, i3) * static_cast<std::int64_t>(bytes);
          };
          if (std::memcmp(at(a), at(b), bytes) != 0) {
            return fmt::format("[{}, {}, {}, {}]: {} against {}", i0, i1, i2, i3, a.at(i0, i1, i2, i3),
                               b.at(i0, i1, i2, i3));
          }
        }
      }
    }
  }
  return "";
}

}  // namespace checkvalve::test
