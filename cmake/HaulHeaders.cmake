# check-headers: a source for every header of the house, which includes that alone. They are not built
# with the rest: scripts/check compiles those that it is asked for.
add_library(check-headers-libraries INTERFACE)
get_property(libraries GLOBAL PROPERTY HAUL_LIBRARIES)
target_link_libraries(check-headers-libraries INTERFACE ${libraries} CLI11::CLI11)

file(GLOB_RECURSE headers CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR}
  ${PROJECT_SOURCE_DIR}/include/*.h ${PROJECT_SOURCE_DIR}/core/*.h
  ${PROJECT_SOURCE_DIR}/tokenizers/*.h ${PROJECT_SOURCE_DIR}/cli/*.h
  ${PROJECT_SOURCE_DIR}/runtime/*.h ${PROJECT_SOURCE_DIR}/models/*.h
  ${PROJECT_SOURCE_DIR}/kernels/*.h ${PROJECT_SOURCE_DIR}/distributed/*.h
  ${PROJECT_SOURCE_DIR}/training/*.h)
if(NOT HAUL_TORCH)
  list(FILTER headers EXCLUDE REGEX
    "^(include/haul/torch|runtime|models|kernels|distributed|training|cli/torch)/")
endif()
if(NOT HAUL_CUDA)
  list(FILTER headers EXCLUDE REGEX "^kernels/cuda/")
endif()
set(sources)
foreach(header ${headers})
  set(source ${PROJECT_BINARY_DIR}/check-headers/${header}.cpp)
  if(NOT EXISTS ${source})
    file(WRITE ${source} "#include \"${header}\"\n")
  endif()
  list(APPEND sources ${source})
endforeach()
add_library(check-headers OBJECT EXCLUDE_FROM_ALL ${sources})
target_link_libraries(check-headers PRIVATE check-headers-libraries)
target_compile_options(check-headers PRIVATE -fsyntax-only)
target_include_directories(check-headers PRIVATE ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/include)
haul_warnings(check-headers)
