// All sources as one translation unit: compiles twice as fast as one by one.
#include "module.cpp"

#include "best.cpp"
#include "columns.cpp"
#include "decompose.cpp"
#include "evaluate.cpp"
#include "lanes.cpp"
#include "model.cpp"
#include "prepare.cpp"
#include "reader.cpp"
#include "space.cpp"
#include "table.cpp"
#include "walk.cpp"
