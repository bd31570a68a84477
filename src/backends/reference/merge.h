// merge.h: joining two partial attention results of one row.
#pragma once

#include <span>

namespace checkvalve::reference {

// out = (e^lse1 out1 + e^lse2 out2) / (e^lse1 + e^lse2); returns the joint lse. A partial with lse = -inf has weight 0
// and is not read; both empty give 0 and -inf. out may alias out1 or out2. Natural logs.
double merge_row(std::span<const double> out1, double lse1, std::span<const double> out2, double lse2,
                 std::span<double> out);

}  // namespace checkvalve::reference
