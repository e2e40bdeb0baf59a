// Package soak runs random campaigns against a lab: requests that users make and faults that machines, the provider, the
// management cluster and the lock have, in an order that comes from a seed, while a monitor looks on. The monitor reads etcd, that
// of the management cluster as well, and the log of calls itself. It must never take the product's word for anything, nor know how
// the product works.
package soak
