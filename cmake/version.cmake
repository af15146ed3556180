# project(cairn VERSION …) → generated/cairn/version.h, which is installed with the public headers.
configure_file(${CMAKE_CURRENT_LIST_DIR}/version.h.in ${CMAKE_BINARY_DIR}/generated/cairn/version.h @ONLY)
