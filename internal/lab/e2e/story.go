package e2e

import (
	"context"

	"github.com/maesh/provider-ichor/internal/lab/story"
)

// A step is one check of the story. Those on the main road, which most users take, can be told without the others.
type step struct {
	story.Check

	main bool
}

// story begins with blank machines and an empty registry, and ends with blank machines.
func (e *E2E) story() []step {
	check := func(says string, hold func(context.Context) error) step {
		return step{Check: story.Check{Says: says, Hold: hold}}
	}
	road := func(says string, hold func(context.Context) error) step {
		return step{Check: story.Check{Says: says, Hold: hold}, main: true}
	}
	return []step{
		road("one configuration from the registry brings provider and function, and all three are healthy", e.install),
		road("one claim becomes a cluster, and the claim is Ready", e.claimed),
		road("the Secret that the claim names opens it, and every Node is Ready", e.nodesReady),
		check("at rest nothing writes to a managed resource during five polls, and the topology is Responsive", e.atRest),
		check("no secret of the cluster is in any other object, and none in a log or a metric", e.noSecrets),
		check("Flux prunes what a commit has lost: the delete is refused, Flux says by what, and nothing happens", e.pruned),
		check("a machine that vanishes from its list is kept, nothing is sent to it, and the claim says so", e.vanishes),
		check("a pool is scaled up by listing a machine", e.poolGrows),
		check("a pool is scaled down by naming the machine in removals", e.poolShrinks),
		road("one edit of the claim replaces a control plane: the new one joins, then the old one leaves etcd and is wiped", e.replaces),
		check("another one is replaced while Crossplane, provider and function are killed at random, and the provider is upgraded in its midst", e.replacesUnderFire),
		check("a delete of the claim without permission is refused with the way out, and nothing happens", e.deleteRefused),
		road("with permission the claim's delete takes the cluster down: every machine is blank, and nothing remains", e.deleteAllowed),
		check("a namespaced topology becomes a cluster, with its connection Secret", e.topologyReady),
		check("it is guarded alike, and with permission its machine ends blank", e.topologyDeleted),
	}
}

// checks are those of the whole story, or of its main road.
func (e *E2E) checks(short bool) []story.Check {
	var out []story.Check
	for _, s := range e.story() {
		if s.main || !short {
			out = append(out, s.Check)
		}
	}
	return out
}
