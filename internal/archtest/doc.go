// Package archtest proves about the tree what its documents promise: who may import what, who may make which call, and that
// words are documented. It must never be imported, and it holds nothing but tests. Each check is a function from the tree to
// problems; testdata/violations.txtar breaks every one of them on purpose, so that a check that sees nothing is seen.
package archtest
