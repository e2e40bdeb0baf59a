// Package gitops tests examples/gitops: that the health checks say what they promise, and that what Flux's own controller
// does to a cluster loses nothing. It must never hold anything that the product needs: all of it is tests.
package gitops
