// version.h: the one version number; CMake and pyproject.toml read it from here.
#pragma once

#define CHECKVALVE_VERSION_MAJOR 0
#define CHECKVALVE_VERSION_MINOR 1
#define CHECKVALVE_VERSION_PATCH 0
#define CHECKVALVE_VERSION "0.1.0"
