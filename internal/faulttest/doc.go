// Package faulttest drives the whole provider against machines that fail, one named fault after the other, and holds what a
// person is told then against texts that were reviewed as prose. It must never contain anything but tests.
//
// Every test run goes through the removals; -faults.all through the whole catalogue.
package faulttest
