# control.fbs → generated/wire/control_generated.h
find_program(CAIRN_FLATC flatc REQUIRED)
set(CAIRN_CONTROL_FBS ${CMAKE_SOURCE_DIR}/src/wire/control.fbs)
set(CAIRN_CONTROL_H ${CMAKE_BINARY_DIR}/generated/wire/control_generated.h)
add_custom_command(OUTPUT ${CAIRN_CONTROL_H}
  COMMAND ${CAIRN_FLATC} --cpp --scoped-enums --cpp-std c++17 -o ${CMAKE_BINARY_DIR}/generated/wire ${CAIRN_CONTROL_FBS}
  DEPENDS ${CAIRN_CONTROL_FBS} VERBATIM)
add_custom_target(cairn_generated DEPENDS ${CAIRN_CONTROL_H})
