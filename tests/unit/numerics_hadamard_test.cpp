// numerics_hadamard_test.cpp: the rotation of Q and K rows for every head_dim.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "numerics/hadamard.h"

namespace checkvalve::numerics {
namespace {

constexpr int kMaxHeadDim = 256;

// Entry (i, j) of the normalised block-diagonal Sylvester matrix of size d.
double entry(int i, int j, int block) {
  if (i / block != j / block) {
    return 0.0;
  }
  const int odd = std::popcount(static_cast<std::uint32_t>((i % block) & (j % block))) % 2;
  return (odd != 0 ? -1.0 : 1.0) / std::sqrt(static_cast<double>(block));
}

int largest_power_of_two_divisor(int d) {
  int block = 1;
  while (d % (2 * block) == 0) {
    block *= 2;
  }
  return block;
}

std::vector<float> gauss_row(int d, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> row(static_cast<std::size_t>(d));
  for (float& x : row) {
    x = normal(random);
  }
  return row;
}

double norm(const std::vector<float>& row) {
  double sum = 0.0;
  for (const float x : row) {
    sum += static_cast<double>(x) * static_cast<double>(x);
  }
  return std::sqrt(sum);
}

TEST(HadamardBlock, IsTheLargestPowerOfTwoThatDividesHeadDim) {
  for (int d = 1; d <= kMaxHeadDim; ++d) {
    EXPECT_EQ(hadamard_block(d), largest_power_of_two_divisor(d)) << d;
  }
  EXPECT_EQ(hadamard_block(128), 128);
  EXPECT_EQ(hadamard_block(96), 32);
  EXPECT_EQ(hadamard_block(80), 16);
  EXPECT_EQ(hadamard_block(7), 1);
}

TEST(RotateRow, UnitVectorsGiveTheColumnsOfTheMatrix) {
  for (int d = 1; d <= kMaxHeadDim; ++d) {
    const int block = largest_power_of_two_divisor(d);
    for (int j = 0; j < d; ++j) {
      std::vector<double> row(static_cast<std::size_t>(d));
      std::vector<float> narrow(static_cast<std::size_t>(d));
      row[static_cast<std::size_t>(j)] = 1.0;
      narrow[static_cast<std::size_t>(j)] = 1.0F;
      rotate_row(row.data(), d);
      rotate_row(narrow.data(), d);
      for (int i = 0; i < d; ++i) {
        const double expected = entry(i, j, block);
        const auto at = static_cast<std::size_t>(i);
        ASSERT_NEAR(row[at], expected, 1e-15) << "d " << d << " entry " << i << ", " << j;
        ASSERT_NEAR(static_cast<double>(narrow[at]), expected, 1e-7) << "d " << d << " entry " << i << ", " << j;
      }
    }
  }
}

TEST(RotateRow, IsItsOwnInverseWithinRounding) {
  for (int d = 1; d <= kMaxHeadDim; ++d) {
    const std::vector<float> original = gauss_row(d, static_cast<std::uint32_t>(d));
    std::vector<float> row = original;
    rotate_row(row.data(), d);
    rotate_row(row.data(), d);
    for (std::size_t i = 0; i < row.size(); ++i) {
      ASSERT_NEAR(static_cast<double>(row[i]), static_cast<double>(original[i]), 0x1p-20 * norm(original)) << d;
    }
  }
}

TEST(RotateRow, KeepsDotProductsWithinRounding) {
  for (int d = 1; d <= kMaxHeadDim; ++d) {
    std::vector<float> a = gauss_row(d, 1000U + static_cast<std::uint32_t>(d));
    std::vector<float> b = gauss_row(d, 2000U + static_cast<std::uint32_t>(d));
    const auto dot = [](const std::vector<float>& x, const std::vector<float>& y) {
      double sum = 0.0;
      for (std::size_t i = 0; i < x.size(); ++i) {
        sum += static_cast<double>(x[i]) * static_cast<double>(y[i]);
      }
      return sum;
    };
    const double before = dot(a, b);
    const double bound = 0x1p-20 * norm(a) * norm(b);
    rotate_row(a.data(), d);
    rotate_row(b.data(), d);
    ASSERT_NEAR(dot(a, b), before, bound) << d;
  }
}

TEST(RotateRow, ABlockHasTheSameBitsWhereverItStands) {
  const std::vector<float> block = gauss_row(32, 5);
  std::vector<float> alone = block;
  rotate_row(alone.data(), 32);
  for (const int d : {96, 160, 224}) {
    for (int at = 0; at < d; at += 32) {
      std::vector<float> row = gauss_row(d, 6);
      std::copy(block.begin(), block.end(), row.begin() + at);
      rotate_row(row.data(), d);
      for (int i = 0; i < 32; ++i) {
        ASSERT_EQ(std::bit_cast<std::uint32_t>(row[static_cast<std::size_t>(at + i)]),
                  std::bit_cast<std::uint32_t>(alone[static_cast<std::size_t>(i)]))
            << "d " << d << " block at " << at << " element " << i;
      }
    }
  }
}

TEST(RotateRow, LeavesOddHeadDimsAlone) {
  for (const int d : {1, 7, 63, 255}) {
    const std::vector<float> original = gauss_row(d, 3);
    std::vector<float> row = original;
    rotate_row(row.data(), d);
    EXPECT_EQ(row, original) << d;
  }
}

TEST(RotateRow, SpreadsAConstantRowIntoOneElement) {
  std::vector<float> row(16, 1.0F);
  rotate_row(row.data(), 16);
  EXPECT_EQ(row[0], 4.0F);
  for (std::size_t i = 1; i < row.size(); ++i) {
    EXPECT_EQ(row[i], 0.0F) << i;
  }
}

}  // namespace
}  // namespace checkvalve::numerics
