# Warnings, sanitizers and floating-point rules for every target of the project.
add_library(checkvalve_options INTERFACE)
# Fused multiply-add contraction would make results depend on the target CPU.
target_compile_options(checkvalve_options INTERFACE -Wall -Wextra -Wconversion -Wshadow -Wnon-virtual-dtor
                                                    -ffp-contract=off)
if(CHECKVALVE_WERROR)
  target_compile_options(checkvalve_options INTERFACE -Werror)
endif()
if(CHECKVALVE_SANITIZE)
  list(JOIN CHECKVALVE_SANITIZE "," sanitizers)
  set(flags -fsanitize=${sanitizers} -fno-omit-frame-pointer)
  if(CHECKVALVE_SANITIZE MATCHES "undefined")
    list(APPEND flags -fno-sanitize-recover=undefined)
  endif()
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # GCC's manual: sanitizer instrumentation makes this warning report false positives (here in <regex>).
    list(APPEND flags -Wno-maybe-uninitialized)
  endif()
  target_compile_options(checkvalve_options INTERFACE ${flags})
  target_link_options(checkvalve_options INTERFACE ${flags})
endif()
