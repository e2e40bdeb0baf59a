// Package tools hands out the external programs that the lab and the tests run, and builds those that are missing.
//
// Each program comes from a pinned module under hack/tools, because their dependencies contradict each other and ours.
// A binary is built once and kept outside the source tree, in $ICHOR_TOOLS_DIR or else in
// <user cache>/provider-ichor/tools/<name>-<version>-<hash>/; the hash covers the pins and the flags, so that a bumped pin
// never runs an old binary. It must never start any of the programs, nor take one that it finds on $PATH.
package tools
