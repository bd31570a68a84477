// host_device.h: one source for CPU and GPU code.
#pragma once

#if defined(__CUDACC__)
#define CHECKVALVE_HD __host__ __device__
#else
#define CHECKVALVE_HD
#endif
