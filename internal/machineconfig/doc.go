// Package machineconfig makes the secrets of a Talos cluster, renders the configuration of its machines, and compares it to
// what a machine runs. It must never talk to a machine, and no text that it returns for people may hold a secret.
package machineconfig
