# A folder of the house is one static library: haul_library(core/base SOURCES … LINK …) makes
# the target haul_core_base. Its tests are haul_test(core/base SOURCES … LINK …).

function(haul_warnings target)
  # Sanitizers make g++ see ghosts; the plain build holds the warnings.
  set(strict -Werror)
  if(HAUL_SANITIZE OR HAUL_TSAN)
    set(strict -w)
  endif()
  set(warnings -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion ${strict})
  target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:${warnings}>)
endfunction()

function(haul_library folder)
  cmake_parse_arguments(arg "" "" "SOURCES;LINK;PRIVATE_LINK" ${ARGN})
  string(REPLACE "/" "_" target "haul_${folder}")
  add_library(${target} STATIC ${arg_SOURCES})
  target_include_directories(${target} PUBLIC
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}> $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
    $<INSTALL_INTERFACE:include>)
  target_compile_features(${target} PUBLIC cxx_std_20)
  target_link_libraries(${target} PUBLIC ${arg_LINK} PRIVATE ${arg_PRIVATE_LINK})
  haul_warnings(${target})
  set_property(GLOBAL APPEND PROPERTY HAUL_LIBRARIES ${target})
endfunction()

# Tests are compiled once and run once: what nearly all of them include is read once for all, and they
# are optimised less than what they test.
function(haul_test_build target)
  set(headers haul_test_headers)
  get_target_property(libraries ${target} LINK_LIBRARIES)
  if(libraries MATCHES "haul_(kernels|models|runtime|distributed)")
    set(headers haul_test_torch_headers)
  endif()
  target_precompile_headers(${target} REUSE_FROM ${headers})
  # At this level g++ 12 sees ghosts in sums of strings.
  target_compile_options(${target} PRIVATE
    "$<$<COMPILE_LANGUAGE:CXX>:-O1;-Wno-array-bounds;-Wno-stringop-overflow>")
endfunction()

# SANITIZED are arguments for the run under the sanitizers, which take ten times as long.
# With GPU the tests need one: they are built with the CUDA part and run by `make test-gpu` alone, all
# of a folder in one process, because waking a GPU takes longer than most of them.
function(haul_test folder)
  cmake_parse_arguments(arg "GPU" "SANITIZED" "SOURCES;LINK" ${ARGN})
  if(NOT HAUL_TESTS OR (arg_GPU AND NOT HAUL_CUDA))
    return()
  endif()
  string(REPLACE "/" "_" target "test_${folder}")
  if(arg_GPU)
    string(APPEND target "_gpu")
  endif()
  add_executable(${target} ${arg_SOURCES})
  target_link_libraries(${target} PRIVATE ${arg_LINK} GTest::gmock GTest::gtest_main)
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR})
  haul_warnings(${target})
  haul_test_build(${target})
  # So that a test which runs the command finds it.
  target_compile_definitions(${target} PRIVATE HAUL_COMMAND="${PROJECT_BINARY_DIR}/haul")
  if(arg_GPU)
    add_test(NAME ${target} COMMAND ${target} --gtest_brief=1)
    set_tests_properties(${target} PROPERTIES TIMEOUT 900 LABELS gpu
      RUN_SERIAL TRUE)  # each counts the GPU's memory for itself
  elseif(HAUL_SANITIZE)
    # The search for leaks takes seconds at each exit: all tests of a folder in one process, and
    # none for the many commands that the command's tests start.
    add_test(NAME ${target} COMMAND ${target} --gtest_brief=1 ${arg_SANITIZED})
    set_tests_properties(${target} PROPERTIES TIMEOUT 900)
    if(folder STREQUAL cli)
      set_tests_properties(${target} PROPERTIES ENVIRONMENT ASAN_OPTIONS=detect_leaks=0)
    endif()
  else()
    gtest_discover_tests(${target} DISCOVERY_MODE PRE_TEST PROPERTIES TIMEOUT 900)
  endif()
endfunction()

# A libFuzzer target, built only with -DHAUL_SANITIZE=ON (clang): haul_fuzzer(safetensors LINK …) from
# tests/fuzz/safetensors.cpp.
function(haul_fuzzer name)
  cmake_parse_arguments(arg "" "" "LINK" ${ARGN})
  add_executable(fuzz_${name} ${name}.cpp)
  target_link_libraries(fuzz_${name} PRIVATE ${arg_LINK})
  target_link_options(fuzz_${name} PRIVATE -fsanitize=fuzzer)
  haul_warnings(fuzz_${name})
endfunction()
