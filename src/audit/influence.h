// influence.h: how much each token changes each row, binned.
#pragma once

#include <cstdint>
#include <functional>

#include "audit/examiner.h"
#include "audit/session.h"
#include "checkvalve/audit.h"

namespace checkvalve::audit_detail {

// Runs of influence_matrix for s tokens and at most `bins` bins.
[[nodiscard]] std::int64_t influence_runs(std::int64_t s, std::int64_t bins);

// Fills the matrix; what it sees leak is kept by the examiner too. `step` is called after each planned run.
[[nodiscard]] InfluenceMatrix influence_matrix(Session& session, Examiner& examiner, std::int64_t bins,
                                               const std::function<void()>& step);

}  // namespace checkvalve::audit_detail
