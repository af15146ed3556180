# Compiler flags of all our targets, as one interface library.
find_package(Threads REQUIRED)
add_library(cairn_flags INTERFACE)
target_include_directories(cairn_flags INTERFACE ${CMAKE_SOURCE_DIR}/include ${CMAKE_SOURCE_DIR}/src)
target_include_directories(cairn_flags SYSTEM INTERFACE ${CMAKE_BINARY_DIR}/generated)  # flatc's code has warnings
target_compile_options(cairn_flags INTERFACE -Wall -Wextra -Wno-missing-field-initializers
  -Wshadow -Wconversion -Wold-style-cast -Wnon-virtual-dtor -Woverloaded-virtual -Wextra-semi -Wcast-align
  -Wredundant-decls -Wsuggest-override -Wundef
  $<$<CXX_COMPILER_ID:GNU>:-Wduplicated-cond>
  $<$<CXX_COMPILER_ID:GNU>:-Wduplicated-branches>
  # Clang follows mutexes (base/mutex.h). It asks for braces that the standard leaves out, and has signs in
  # -Wconversion, which g++ has not.
  $<$<CXX_COMPILER_ID:Clang>:-Wthread-safety>
  $<$<CXX_COMPILER_ID:Clang>:-Wno-missing-braces>
  $<$<CXX_COMPILER_ID:Clang>:-Wno-sign-conversion>
  $<$<BOOL:${CAIRN_WERROR}>:-Werror>
  # g++ 12 warns at -O3 of overlapping copies inside std::string's operator+ (its bug 105651).
  $<$<AND:$<CONFIG:Release>,$<CXX_COMPILER_ID:GNU>>:-Wno-restrict>
  # Arithmetic gives the same bits on every machine: nothing is fused.
  -ffp-contract=off)
target_compile_definitions(cairn_flags INTERFACE
  BOOST_ASIO_NO_DEPRECATED BOOST_ASIO_SEPARATE_COMPILATION)
target_link_libraries(cairn_flags INTERFACE Threads::Threads)
if(CAIRN_SANITIZE)
  target_compile_options(cairn_flags INTERFACE -fsanitize=${CAIRN_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  target_link_options(cairn_flags INTERFACE -fsanitize=${CAIRN_SANITIZE})
  if(CAIRN_SANITIZE STREQUAL "thread")
    # g++ warns wherever ThreadSanitizer would not see a fence. Boost.Asio has fences beside its mutexes; ours
    # (shared-memory rings, the loop's turn) stand between atomics, which it sees.
    target_compile_options(cairn_flags INTERFACE $<$<CXX_COMPILER_ID:GNU>:-Wno-tsan>)
  endif()
endif()

find_program(CAIRN_CCACHE ccache)
if(CAIRN_CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CAIRN_CCACHE})
endif()
