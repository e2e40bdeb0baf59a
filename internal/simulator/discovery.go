package simulator

import (
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/resources/cluster"
)

// discoveryTTL is how long a machine that went away without a word is still listed.
const discoveryTTL = 30 * time.Minute

// An affiliate is what one machine tells the others of its cluster.
type affiliate struct {
	spec    cluster.AffiliateSpec
	owner   *system   // the boot that published it
	expires time.Time // zero while the owner lives
}

// A discovery stands for the discovery service and the members' other ways to find each other: machines of one cluster ID
// see each other, and nobody else.
type discovery struct {
	mu       sync.Mutex
	clusters map[string]map[string]affiliate // cluster ID, node ID
	onChange func(clusterID string)
}

func newDiscovery(onChange func(string)) *discovery {
	return &discovery{clusters: map[string]map[string]affiliate{}, onChange: onChange}
}

// publish adds or replaces what a machine says of itself.
func (d *discovery) publish(clusterID string, a affiliate) {
	d.mu.Lock()
	members := d.clusters[clusterID]
	if members == nil {
		members = map[string]affiliate{}
		d.clusters[clusterID] = members
	}
	old, existed := members[a.spec.NodeID]
	members[a.spec.NodeID] = a
	d.mu.Unlock()

	if !existed || old.spec.Hostname != a.spec.Hostname || !slices.Equal(old.spec.Addresses, a.spec.Addresses) || old.owner != a.owner {
		d.onChange(clusterID)
	}
}

// remove takes a machine off the list at once, as the reset signal does.
func (d *discovery) remove(clusterID, nodeID string) {
	d.mu.Lock()
	_, existed := d.clusters[clusterID][nodeID]
	delete(d.clusters[clusterID], nodeID)
	d.mu.Unlock()

	if existed {
		d.onChange(clusterID)
	}
}

// orphan starts the time to live of everything that a boot published.
func (d *discovery) orphan(owner *system, ttl time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()

	for _, members := range d.clusters {
		for id, a := range members {
			if a.owner == owner && a.expires.IsZero() {
				a.expires = time.Now().Add(ttl)
				members[id] = a
			}
		}
	}
}

// list returns the members of a cluster, by node ID.
func (d *discovery) list(clusterID string) []affiliate {
	d.mu.Lock()
	defer d.mu.Unlock()

	out := []affiliate{}
	for id, a := range d.clusters[clusterID] {
		if !a.expires.IsZero() && time.Now().After(a.expires) {
			delete(d.clusters[clusterID], id)
			continue
		}
		out = append(out, a)
	}
	slices.SortFunc(out, func(a, b affiliate) int { return strings.Compare(a.spec.NodeID, b.spec.NodeID) })
	return out
}

// controlPlanes are the addresses of the control planes that discovery lists for a cluster, stale ones included.
func (d *discovery) controlPlanes(clusterID string) []netip.Addr {
	out := []netip.Addr{}
	for _, a := range d.list(clusterID) {
		if a.spec.ControlPlane != nil && len(a.spec.Addresses) > 0 {
			out = append(out, a.spec.Addresses[0])
		}
	}
	return out
}
