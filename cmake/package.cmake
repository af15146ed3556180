# The C++ package: `cmake --install` puts here what a trainer outside this tree needs. The public
# headers, every layer in one static library, the program `cairn`, and two ways to find them:
#   find_package(cairn) and target_link_libraries(trainer cairn::cairn)
#   pkg-config --cflags --libs cairn
include(CMakePackageConfigHelpers)
include(GNUInstallDirs)

cairn_all_layers(layers)
set(objects ${layers})
list(TRANSFORM objects PREPEND "$<TARGET_OBJECTS:")
list(TRANSFORM objects APPEND ">")
add_library(cairn_package STATIC ${objects})
add_dependencies(cairn_package ${layers})
set_target_properties(cairn_package PROPERTIES OUTPUT_NAME cairn LINKER_LANGUAGE CXX)

install(TARGETS cairn_package ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
if(TARGET cairn)
  install(TARGETS cairn RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
install(DIRECTORY ${CMAKE_SOURCE_DIR}/include/cairn DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")
install(FILES ${CMAKE_BINARY_DIR}/generated/cairn/version.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/cairn)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/cairn)
configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/cairn-config.cmake.in ${CMAKE_BINARY_DIR}/cairn-config.cmake
  INSTALL_DESTINATION ${package_dir} PATH_VARS CMAKE_INSTALL_INCLUDEDIR CMAKE_INSTALL_LIBDIR)
# Before 1.0 a minor version may change the interface.
write_basic_package_version_file(${CMAKE_BINARY_DIR}/cairn-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/cairn-config.cmake ${CMAKE_BINARY_DIR}/cairn-config-version.cmake
  DESTINATION ${package_dir})

file(RELATIVE_PATH CAIRN_UP_TO_PREFIX /prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig /prefix)
configure_file(${CMAKE_CURRENT_LIST_DIR}/cairn.pc.in ${CMAKE_BINARY_DIR}/cairn.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/cairn.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
