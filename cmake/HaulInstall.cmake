# `make install`: the command, the headers, and a CMake package with the targets haul::core (torch-
# free) and, where it was built, haul::haul (everything).
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

get_property(libraries GLOBAL PROPERTY HAUL_LIBRARIES)
install(TARGETS ${libraries} EXPORT haulTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(EXPORT haulTargets NAMESPACE haul:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/haul)
install(TARGETS haul RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(DIRECTORY include/haul DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
  PATTERN torch EXCLUDE)
if(HAUL_TORCH)
  install(DIRECTORY include/haul/torch DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/haul)
  install(FILES cmake/HaulTorch.cmake DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/haul)
  install(TARGETS haul-torch RUNTIME DESTINATION libexec/haul)
endif()

configure_package_config_file(cmake/haulConfig.cmake.in
  ${PROJECT_BINARY_DIR}/haulConfig.cmake
  INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/haul)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/haulConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/haulConfig.cmake ${PROJECT_BINARY_DIR}/haulConfigVersion.cmake
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/haul)
