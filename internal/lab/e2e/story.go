package e2e

import "github.com/maesh/provider-ichor/internal/lab/story"

// story begins with blank machines and an empty registry, and ends with blank machines.
func (e *E2E) story() []story.Check {
	return []story.Check{
		{Says: "one configuration from the registry brings provider and function, and all three are healthy", Hold: e.install},
		{Says: "one claim becomes a cluster, and the claim is Ready", Hold: e.claimed},
		{Says: "the Secret that the claim names opens it, and every Node is Ready", Hold: e.nodesReady},
		{Says: "at rest nothing writes to a managed resource during five polls, and the topology is Responsive", Hold: e.atRest},
		{Says: "no secret of the cluster is in any other object, and none in a log", Hold: e.noSecrets},
		{Says: "Flux prunes what a commit has lost: the delete is refused, Flux says by what, and nothing happens", Hold: e.pruned},
		{Says: "a machine that vanishes from its list is kept, nothing is sent to it, and the claim says so", Hold: e.vanishes},
		{Says: "a pool is scaled up by listing a machine", Hold: e.poolGrows},
		{Says: "a pool is scaled down by naming the machine in removals", Hold: e.poolShrinks},
		{Says: "one edit of the claim replaces a control plane: the new one joins, then the old one leaves etcd and is wiped", Hold: e.replaces},
		{Says: "another one is replaced while Crossplane, provider and function are killed at random, and the provider is upgraded in its midst", Hold: e.replacesUnderFire},
		{Says: "a delete of the claim without permission is refused with the way out, and nothing happens", Hold: e.deleteRefused},
		{Says: "with permission the claim's delete takes the cluster down: every machine is blank, and nothing remains", Hold: e.deleteAllowed},
		{Says: "a namespaced topology becomes a cluster, with its connection Secret", Hold: e.topologyReady},
		{Says: "it is guarded alike, and with permission its machine ends blank", Hold: e.topologyDeleted},
	}
}
