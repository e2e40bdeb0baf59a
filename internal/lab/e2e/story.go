package e2e

// story begins with blank machines and an empty registry, and ends with blank machines.
func (e *E2E) story() []check {
	return []check{
		{"one configuration from the registry brings provider and function, and all three are healthy", e.install},
		{"one claim becomes a cluster, and the claim is Ready", e.claimed},
		{"the Secret that the claim names opens it, and every Node is Ready", e.nodesReady},
		{"at rest nothing writes to a managed resource during five polls, and the topology is Responsive", e.atRest},
		{"a machine that vanishes from its list is kept, nothing is sent to it, and the claim says so", e.vanishes},
		{"a pool is scaled up by listing a machine", e.poolGrows},
		{"a pool is scaled down by naming the machine in removals", e.poolShrinks},
		{"one edit of the claim replaces a control plane: the new one joins, then the old one leaves etcd and is wiped", e.replaces},
		{"another one is replaced while the provider's package is upgraded and packages are killed", e.replacesUnderFire},
		{"a delete of the claim without permission is refused with the way out, and nothing happens", e.deleteRefused},
		{"with permission the claim's delete takes the cluster down: every machine is blank, and nothing remains", e.deleteAllowed},
		{"a namespaced topology becomes a cluster, with its connection Secret", e.topologyReady},
		{"it is guarded alike, and with permission its machine ends blank", e.topologyDeleted},
	}
}
