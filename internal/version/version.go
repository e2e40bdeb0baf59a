// Package version says which version of the provider this is. It must never be used to decide anything.
package version

// Version of the provider; set when it is linked.
var Version = "v0.0.0"
