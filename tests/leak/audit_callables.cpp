// audit_callables.cpp: exact causal attention in plain loops, and what goes wrong with it.
#include "leak/audit_callables.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <vector>

#include "numerics/element.h"

namespace checkvalve::test {
namespace {

// A (b, s, h, d) tensor in float64.
struct Tensor {
  std::int64_t b = 0, s = 0, h = 0, d = 0;
  std::vector<double> values;

  explicit Tensor(const ConstTensorView& like)
      : b(like.shape[0]), s(like.shape[1]), h(like.shape[2]), d(like.shape[3]) {
    values.resize(static_cast<std::size_t>(b * s * h * d));
  }
  double& at(std::int64_t n, std::int64_t i, std::int64_t head, std::int64_t c) {
    return values[static_cast<std::size_t>(((n * s + i) * h + head) * d + c)];
  }
  // The address of the channels of one token and head.
  double* row(std::int64_t n, std::int64_t i, std::int64_t head) { return &at(n, i, head, 0); }
};

Tensor load(const ConstTensorView& view) {
  Tensor tensor(view);
  for (std::int64_t i = 0; i < view.numel(); ++i) {
    tensor.values[static_cast<std::size_t>(i)] = numerics::load_element(view, i);
  }
  return tensor;
}

void store(const Tensor& tensor, const TensorView& view) {
  for (std::int64_t i = 0; i < view.numel(); ++i) {
    numerics::store_element(view, i, tensor.values[static_cast<std::size_t>(i)]);
  }
}

double dot(const double* x, const double* y, std::int64_t n) {
  double sum = 0.0;
  for (std::int64_t c = 0; c < n; ++c) {
    sum += x[c] * y[c];
  }
  return sum;
}

void add_scaled(double* sum, double factor, const double* x, std::int64_t n) {
  for (std::int64_t c = 0; c < n; ++c) {
    sum[c] += factor * x[c];
  }
}

// Rounds each element to a multiple of 2^-6 of the largest magnitude in its head, channel and 32-token block.
Tensor block_scaled(Tensor v) {
  for (std::int64_t n = 0; n < v.b; ++n) {
    for (std::int64_t h = 0; h < v.h; ++h) {
      for (std::int64_t c = 0; c < v.d; ++c) {
        for (std::int64_t first = 0; first < v.s; first += 32) {
          const std::int64_t end = std::min(first + 32, v.s);
          double largest = 0.0;
          for (std::int64_t j = first; j < end; ++j) {
            largest = std::max(largest, std::abs(v.at(n, j, h, c)));
          }
          const double step = largest * 0x1p-6;
          for (std::int64_t j = first; j < end && step > 0.0; ++j) {
            v.at(n, j, h, c) = std::round(v.at(n, j, h, c) / step) * step;
          }
        }
      }
    }
  }
  return v;
}

class Attention {
 public:
  Attention(const AuditRun& run, Defect defect)
      : run_(run), defect_(defect), q_(load(run.q)), k_(load(run.k)), v_(load(run.v)), out_(run.out), lse_(lse_rows()) {
    group_ = q_.h / k_.h;
    scale_ = static_cast<double>(run.problem.scale());
    if (defect_ == Defect::kBlockScaledV) {
      v_ = block_scaled(v_);
    }
  }

  void forward() {
    for_each_row([&](std::int64_t n, std::int64_t h, std::int64_t i) {
      const std::int64_t kv = h / group_;
      const std::int64_t visible = end_of(i, Defect::kMaskOffByOne);
      const auto p = probabilities(n, h, i, visible);
      for (std::int64_t j = 0; j < visible; ++j) {
        add_scaled(out_.row(n, i, h), p[static_cast<std::size_t>(j)], v_.row(n, j, kv), v_.d);
      }
      const std::int64_t block_end = std::min(i / 32 * 32 + 32, q_.s);
      for (std::int64_t j = visible; defect_ == Defect::kMaskedValueTimesZero && j < block_end; ++j) {
        add_scaled(out_.row(n, i, h), 0.0, v_.row(n, j, kv), v_.d);
      }
      if (defect_ == Defect::kOneElement && n == 0 && h == 0 && i + 1 < block_end) {
        out_.at(n, i, h, 0) += v_.at(n, block_end - 1, 0, 0);
      }
      if (defect_ == Defect::kLengthDependent) {
        out_.at(n, i, h, 0) *= 1.0 + 0.01 * static_cast<double>(q_.s);
      }
    });
  }

  void backward(Tensor d_out) {
    Tensor dq(run_.dq);
    Tensor dk(run_.dk);
    Tensor dv(run_.dv);
    Tensor v = defect_ == Defect::kGradientSeesLaterV ? block_scaled(v_) : v_;
    for_each_row([&](std::int64_t n, std::int64_t h, std::int64_t i) {
      const std::int64_t kv = h / group_;
      const double* d_row = d_out.row(n, i, h);
      if (std::all_of(d_row, d_row + v_.d, [](double x) { return x == 0.0; })) {
        return;
      }
      const std::int64_t visible = end_of(i, Defect::kMaskOffByOne);
      const auto p = probabilities(n, h, i, visible);
      const double delta = dot(d_row, out_.row(n, i, h), v_.d);
      for (std::int64_t j = 0; j < visible; ++j) {
        const double ds = p[static_cast<std::size_t>(j)] * (dot(d_row, v_.row(n, j, kv), v_.d) - delta) * scale_;
        const double ds_of_q = p[static_cast<std::size_t>(j)] * (dot(d_row, v.row(n, j, kv), v.d) - delta) * scale_;
        add_scaled(dq.row(n, i, h), ds_of_q, k_.row(n, j, kv), k_.d);
        add_scaled(dk.row(n, j, kv), ds, q_.row(n, i, h), q_.d);
        add_scaled(dv.row(n, j, kv), p[static_cast<std::size_t>(j)], d_row, v_.d);
      }
      const bool first_of_group = h % group_ == 0;
      if (defect_ == Defect::kGradientSeesEarlierQ && first_of_group && i > 0) {
        add_scaled(dk.row(n, i, kv), 1.0, q_.row(n, i - 1, h), q_.d);
      }
      if (defect_ == Defect::kGradientSeesEarlierDOut && first_of_group && i > 0) {
        add_scaled(dv.row(n, i, kv), 1.0, d_out.row(n, i - 1, h), v_.d);
      }
    });
    store(dq, run_.dq);
    store(dk, run_.dk);
    const double kept = numerics::load_element(run_.dv, run_.dv.numel() - 1);
    store(dv, run_.dv);
    if (defect_ == Defect::kUnwrittenDv) {
      numerics::store_element(run_.dv, run_.dv.numel() - 1, kept);
    }
  }

  void store_forward(std::int64_t call) {
    if (defect_ == Defect::kNotDeterministic) {
      out_.values[3] += static_cast<double>(call);
    }
    const double kept = numerics::load_element(run_.out, run_.out.numel() - 1);
    store(out_, run_.out);
    if (defect_ == Defect::kUnwrittenOut) {
      numerics::store_element(run_.out, run_.out.numel() - 1, kept);
    }
    for (std::int64_t i = 0; run_.lse && i < run_.lse.numel(); ++i) {
      numerics::store_element(run_.lse, i, lse_[static_cast<std::size_t>(i)]);
    }
  }

 private:
  void for_each_row(const std::function<void(std::int64_t, std::int64_t, std::int64_t)>& visit) const {
    for (std::int64_t n = 0; n < q_.b; ++n) {
      for (std::int64_t h = 0; h < q_.h; ++h) {
        for (std::int64_t i = 0; i < q_.s; ++i) {
          visit(n, h, i);
        }
      }
    }
  }

  // One past the last token that row i sees.
  [[nodiscard]] std::int64_t end_of(std::int64_t i, Defect off_by_one) const {
    return std::min(i + (defect_ == off_by_one ? 2 : 1), q_.s);
  }

  std::vector<double> probabilities(std::int64_t n, std::int64_t h, std::int64_t i, std::int64_t end) {
    std::vector<double> p(static_cast<std::size_t>(end));
    double largest = -std::numeric_limits<double>::infinity();
    for (std::int64_t j = 0; j < end; ++j) {
      const double logit = dot(q_.row(n, i, h), k_.row(n, j, h / group_), q_.d) * scale_;
      p[static_cast<std::size_t>(j)] = logit;
      largest = std::max(largest, logit);
    }
    double sum = 0.0;
    for (double& x : p) {
      x = std::exp(x - largest);
      sum += x;
    }
    double counted = sum;
    if (defect_ == Defect::kLseOnly && i + 1 < q_.s) {
      counted += std::exp(dot(q_.row(n, i, h), k_.row(n, i + 1, h / group_), q_.d) * scale_ - largest);
    }
    lse_[static_cast<std::size_t>((n * q_.h + h) * q_.s + i)] = largest + std::log(counted);
    for (double& x : p) {
      x /= sum;
    }
    return p;
  }

  [[nodiscard]] std::vector<double> lse_rows() const {
    return std::vector<double>(static_cast<std::size_t>(q_.b * q_.h * q_.s));
  }

  const AuditRun& run_;
  Defect defect_;
  Tensor q_, k_, v_, out_;
  std::vector<double> lse_;  // (b, h, s)
  std::int64_t group_ = 1;
  double scale_ = 1.0;
};

void write_input(const ConstTensorView& view) {
  TensorView writable{.data = const_cast<void*>(view.data), .dtype = view.dtype};
  numerics::store_element(writable, 0, 7.0);
}

}  // namespace

AttentionCallable attention_with(Defect defect) {
  const auto calls = std::make_shared<std::int64_t>(0);
  return [defect, calls](const AuditRun& run) {
    Attention attention(run, defect);
    attention.forward();
    attention.store_forward(++*calls);
    if (run.d_out) {
      attention.backward(load(run.d_out));
    }
    const Tensor q = load(run.q);
    const bool has_nan = std::any_of(q.values.begin(), q.values.end(), [](double x) { return std::isnan(x); });
    if (defect == Defect::kWritesInput) {
      write_input(run.v);
    }
    if (defect == Defect::kWritesInputIfNaN && has_nan) {
      write_input(run.q);
    }
  };
}

}  // namespace checkvalve::test
