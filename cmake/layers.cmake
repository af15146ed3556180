# cairn_layer(name): library cairn_<name> from src/<name>, its tests in build/<preset>/bin/<name>_test,
# and, for the layers that the simulator drives, a second library cairn_<name>_sim with the planted
# bugs compiled in. Tests are the files *_test.cc beside the code.
set(CAIRN_LAYERS_SO_FAR "" CACHE INTERNAL "")

# Seconds after which a test counts as hung. Sanitizers take their time.
function(cairn_test_timeout name seconds)
  if(CAIRN_SANITIZE)
    math(EXPR seconds "4 * ${seconds}")
  endif()
  set_tests_properties(${name} PROPERTIES TIMEOUT ${seconds})
  list(FIND CAIRN_LONG_TESTS ${name} place)
  if(place GREATER_EQUAL 0)
    math(EXPR cost "1000 - ${place}")
    set_tests_properties(${name} PROPERTIES COST ${cost})
  endif()
endfunction()
# The longest tests, which ctest starts first, in this order: one that begins last would run beside idle
# cores. Only the order matters, and only where no earlier run has shown how long each takes.
set(CAIRN_LONG_TESTS
  sim.planted_bugs python.allreduce_deaths tidy.tidy sim.seeds python.allreduce_hybrid python.server_deaths
  python.examples python.sparse_examples fault.deaths fault.etcd fault.owners python.compat_fleet
  python.compat_mindspore python.sync_equals_one_process python.optimizer_workers python.embedding_workers
  python.allreduce_steps python.optimizer_failures python.sampler python.launchers python.together_1 python.together_2 python.together_3
  cli.run cli.copies cli.jobs cli.machines fault.scale table contract)

# The static ones, so that a wheel runs where the libraries are not installed.
find_library(CAIRN_XXHASH NAMES libxxhash.a xxhash REQUIRED)
find_library(CAIRN_LZ4 NAMES liblz4.a lz4 REQUIRED)
# Highway: its headers alone (src/optimizer/kernels.cc), for the same reason.
find_path(CAIRN_HIGHWAY_INCLUDE hwy/highway.h REQUIRED)
add_library(cairn_highway INTERFACE)
target_include_directories(cairn_highway SYSTEM INTERFACE ${CAIRN_HIGHWAY_INCLUDE})
set(CAIRN_LIBS_optimizer cairn_highway)
set(CAIRN_LIBS_base ${CAIRN_XXHASH})
set(CAIRN_LIBS_wire ${CAIRN_XXHASH} ${CAIRN_LZ4})

# What has planted bugs and is no role: cairn-sim has objects of its own of these files, so in their
# library each must be one by itself.
set(CAIRN_PLANTED_BELOW ${CMAKE_SOURCE_DIR}/src/wire/coding.cc ${CMAKE_SOURCE_DIR}/src/wire/state_delta.cc)
set_source_files_properties(${CAIRN_PLANTED_BELOW} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)

# cairn_precompiled(target kind [HEADER...]): headers of the standard library (kind test: and gtest's), and
# those that are named, are parsed once for all targets of a kind, which must have the same flags. Only where CAIRN_PCH is on: other
# builds show that every file includes what it uses.
function(cairn_precompiled target kind)
  if(NOT CAIRN_PCH)
    return()
  endif()
  get_property(first GLOBAL PROPERTY CAIRN_PCH_OF_${kind})
  if(first)
    target_precompile_headers(${target} REUSE_FROM ${first})
    return()
  endif()
  set_property(GLOBAL PROPERTY CAIRN_PCH_OF_${kind} ${target})
  set(headers <algorithm> <atomic> <chrono> <cstring> <deque> <functional> <map> <memory> <mutex> <optional>
    <span> <string> <unordered_map> <utility> <variant> <vector>)
  if(kind STREQUAL test)
    list(APPEND headers <gtest/gtest.h>)
  endif()
  target_precompile_headers(${target} PRIVATE ${headers} ${ARGN})
endfunction()

# cairn_together(target): some files are compiled as one, which takes half as long or less. Their
# unnamed namespaces are one then: names in them differ. Where CAIRN_PCH is on, for the same reason.
function(cairn_together target)
  if(CAIRN_PCH AND NOT target MATCHES "^(cairn_optimizer|optimizer_test)$")  # these are meant to be alike
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 8)
    target_compile_options(${target} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage>)  # it takes them for headers
  endif()
endfunction()

function(cairn_layer name)
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/${name}/*.cc)
  set(tests ${sources})
  list(FILTER tests INCLUDE REGEX "_test\\.cc$")
  list(FILTER sources EXCLUDE REGEX "_test\\.cc$")
  if(NOT sources)
    return()
  endif()
  add_library(cairn_${name} STATIC ${sources})
  add_dependencies(cairn_${name} cairn_generated)
  set(below ${CAIRN_LAYERS_SO_FAR})
  list(TRANSFORM below PREPEND cairn_)
  list(REVERSE below)
  target_link_libraries(cairn_${name} PUBLIC cairn_flags ${below} ${CAIRN_LIBS_${name}})
  cairn_precompiled(cairn_${name} library)
  cairn_together(cairn_${name})
  if(name MATCHES "^(scheduler|server|client)$")
    # Pure state machines only: the rooms that own threads and sockets, and the public client, stay out.
    set(pure ${sources})
    list(FILTER pure EXCLUDE REGEX "/src/${name}/(node|runtime|api)/")
    add_library(cairn_${name}_sim STATIC EXCLUDE_FROM_ALL ${pure})
    add_dependencies(cairn_${name}_sim cairn_generated)
    target_compile_definitions(cairn_${name}_sim PUBLIC CAIRN_WITH_PLANTED_BUGS)
    target_link_libraries(cairn_${name}_sim PUBLIC cairn_flags cairn_table cairn_optimizer cairn_transport cairn_wire cairn_base)
    cairn_precompiled(cairn_${name}_sim sim)
    cairn_together(cairn_${name}_sim)
  endif()
  if(tests AND CAIRN_BUILD_TESTS)
    add_executable(${name}_test ${tests})
    target_link_libraries(${name}_test PRIVATE cairn_${name} gtest gtest_main)
    target_compile_options(${name}_test PRIVATE -O0)  # the tests themselves need no speed, their build does
    cairn_precompiled(${name}_test test)
    cairn_together(${name}_test)
    add_test(NAME ${name} COMMAND ${name}_test)
    cairn_test_timeout(${name} 300)
  endif()
  list(APPEND CAIRN_LAYERS_SO_FAR ${name})
  set(CAIRN_LAYERS_SO_FAR "${CAIRN_LAYERS_SO_FAR}" CACHE INTERNAL "")
endfunction()

# cairn_all_layers(variable): every layer that exists, topmost first, for what uses the whole.
function(cairn_all_layers variable)
  set(all ${CAIRN_LAYERS_SO_FAR})
  list(TRANSFORM all PREPEND cairn_)
  list(REVERSE all)
  set(${variable} ${all} PARENT_SCOPE)
endfunction()
