package machineconfig

import (
	"errors"
	"fmt"
)

// Identity is what a configuration says of whose it is. What it does not say is empty.
type Identity struct {
	// ClusterID of the cluster.
	ClusterID string
	// Hostname of the machine.
	Hostname string
	// Role: controlplane or worker, or init in old clusters.
	Role string
}

// Identify reads from the configuration of a machine whose it is, whatever version of Talos it is for. The error shows
// nothing of the configuration.
func Identify(data []byte) (Identity, error) {
	all, err := parse(data)
	if err != nil {
		return Identity{}, fmt.Errorf("cannot read the machine configuration: %w", err)
	}
	m := find(all, mainDocument)
	if m == nil {
		return Identity{}, errors.New("cannot read the machine configuration: it has no document with machine and cluster")
	}
	return identityOf(all, m), nil
}

func identityOf(all []document, main map[string]any) Identity {
	is := Identity{
		ClusterID: text(main, "cluster", "id"),
		Role:      text(main, "machine", "type"),
		Hostname:  text(main, "machine", "network", "hostname"),
	}
	if h := text(find(all, "HostnameConfig"), "hostname"); h != "" {
		is.Hostname = h
	}
	return is
}
