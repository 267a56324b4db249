# libtorch from the Python wheel, as imported targets. torch's own CMake package insists on a CUDA
# toolkit; the CPU part needs none of it.
#
#   haul::torch       torch_cpu and c10: all that a machine without a GPU needs
#   haul::torch_cuda  also torch_cuda, c10_cuda and the CUDA runtime; only where nvcc and the
#                     libraries that torch_cuda links are there (HAUL_CUDA is then ON)
#
# HAUL_TORCH_DIR (variable or environment) names the folder `torch` of an installed wheel; else the
# project's .venv is looked at, then the python3 on the path.

set(HAUL_TORCH_DIR "$ENV{HAUL_TORCH_DIR}" CACHE PATH "folder 'torch' of an installed torch wheel")
if(NOT HAUL_TORCH_DIR)
  file(GLOB candidates ${CMAKE_CURRENT_SOURCE_DIR}/.venv/lib/python3*/site-packages/torch)
  if(NOT candidates)
    execute_process(
      COMMAND python3 -c "import importlib.util as u; s = u.find_spec('torch'); print(s.submodule_search_locations[0] if s else '')"
      OUTPUT_VARIABLE candidates OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  endif()
  list(GET candidates 0 HAUL_TORCH_DIR)
endif()
if(NOT EXISTS ${HAUL_TORCH_DIR}/lib/libtorch_cpu.so)
  message(FATAL_ERROR "no torch wheel found (looked at '${HAUL_TORCH_DIR}'): run scripts/setup torch, "
                      "set HAUL_TORCH_DIR, or build the torch-free part with -DHAUL_TORCH=OFF")
endif()

get_filename_component(site_packages ${HAUL_TORCH_DIR} DIRECTORY)
file(GLOB wheel_libraries ${site_packages}/nvidia/*/lib)
set(HAUL_TORCH_RPATH ${HAUL_TORCH_DIR}/lib ${wheel_libraries})

add_library(haul::torch INTERFACE IMPORTED GLOBAL)
target_include_directories(haul::torch SYSTEM INTERFACE
  ${HAUL_TORCH_DIR}/include ${HAUL_TORCH_DIR}/include/torch/csrc/api/include)
# The wheel's headers hide another fmt, of which it carries no library.
target_compile_definitions(haul::torch INTERFACE FMT_HEADER_ONLY)
target_link_directories(haul::torch INTERFACE ${HAUL_TORCH_RPATH})
list(TRANSFORM HAUL_TORCH_RPATH PREPEND "-Wl,-rpath," OUTPUT_VARIABLE rpath_flags)
list(TRANSFORM HAUL_TORCH_RPATH PREPEND "-Wl,-rpath-link," OUTPUT_VARIABLE rpath_link_flags)
# Operators register themselves when a library is loaded: it must be linked though nothing names it.
# One word each, because CMake moves single ones about.
target_link_libraries(haul::torch INTERFACE
  -Wl,--push-state,--no-as-needed,-ltorch_cpu,-lc10,--pop-state ${rpath_flags} ${rpath_link_flags})

# The wheel's own list of what torch_cuda links, as far as it lies in other packages. The compiler can
# be one, too (scripts/cuda.txt).
set(HAUL_CUDA OFF)
file(GLOB cudart ${site_packages}/nvidia/cu[0-9]*/lib64/libcudart.so)
set(toolkit)
if(cudart)
  get_filename_component(toolkit ${cudart}/../.. ABSOLUTE)
endif()
find_program(HAUL_NVCC nvcc HINTS ${toolkit} PATH_SUFFIXES bin PATHS /usr/local/cuda)
file(GLOB cublas ${site_packages}/nvidia/*/lib/libcublas.so.*)
file(GLOB nccl ${site_packages}/nvidia/*/lib/libnccl.so.*)
if(HAUL_NVCC AND cublas AND nccl AND EXISTS ${HAUL_TORCH_DIR}/lib/libtorch_cuda.so)
  set(HAUL_CUDA ON)
  set(own_root ${CUDAToolkit_ROOT})
  if(toolkit AND HAUL_NVCC STREQUAL "${toolkit}/bin/nvcc")
    set(CUDAToolkit_ROOT ${toolkit})
  endif()
  find_package(CUDAToolkit REQUIRED)
  set(CUDAToolkit_ROOT ${own_root})
  add_library(haul::torch_cuda INTERFACE IMPORTED GLOBAL)
  target_link_libraries(haul::torch_cuda INTERFACE haul::torch
    -Wl,--push-state,--no-as-needed,-ltorch_cuda,-lc10_cuda,--pop-state CUDA::cudart)
endif()
if(HAUL_REQUIRE_CUDA AND NOT HAUL_CUDA)
  message(FATAL_ERROR "the CUDA part needs nvcc and a torch with its CUDA libraries; "
    "nvcc: ${HAUL_NVCC}, torch: ${HAUL_TORCH_DIR}")
endif()
message(STATUS "torch: ${HAUL_TORCH_DIR}, CUDA part: ${HAUL_CUDA}")
