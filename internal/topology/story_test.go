package topology

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	fnv1 "github.com/crossplane/function-sdk-go/proto/v1"

	"github.com/maesh/provider-ichor/apis/v1alpha1"
)

// TestStories tells what becomes of a topology over several passes, one kind of incident in each file of testdata/stories. Run it with
// -rewrite to write down what is done now, and commit that only if you understand what changed and want it.
//
//	topology [claim]     what is declared from now on; see declare
//	pass [times=n] [blind]  reconcile, and tell what changed and what the topology says
//	settle               let the provider work until everything is well
//	tell <name> <what>…  let one object say something else, or happen to it
//	status               the status of the topology
//	show <name>          what is desired of one object
func TestStories(t *testing.T) {
	datadriven.Walk(t, filepath.Join("testdata", "stories"), func(t *testing.T, path string) {
		c := newCore(t)
		said := map[string]string{}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			c.t = t
			switch d.Cmd {
			case "topology":
				if err := c.declare(d.Input, d.HasArg("claim")); err != nil {
					d.Fatalf(t, "%v", err)
				}
				return ""
			case "settle":
				c.settle()
				return ""
			case "tell":
				for _, arg := range d.CmdArgs[1:] {
					if err := c.tell(d.CmdArgs[0].Key, arg.String()); err != nil {
						d.Fatalf(t, "%v", err)
					}
				}
				return ""
			case "connection":
				c.connection = map[string][]byte{}
				for _, arg := range d.CmdArgs {
					c.connection[arg.Key] = []byte(arg.Vals[0])
				}
				return ""
			case "pass":
				times := 1
				if d.HasArg("times") {
					d.ScanArgs(t, "times", &times)
				}
				c.blind = d.HasArg("blind")
				return passes(c, times, said)
			case "status":
				return yamlOf(t, c.rsp.GetDesired().GetComposite().GetResource().GetFields()["status"])
			case "show":
				r := c.rsp.GetDesired().GetResources()[d.CmdArgs[0].Key]
				return fmt.Sprintf("ready: %s\n%s", r.GetReady(), yamlOf(t, r.GetResource()))
			case "details":
				return detailsOf(c)
			}
			d.Fatalf(t, "a story has no %q", d.Cmd)
			return ""
		})
	})
}

// passes tells the changes of some passes, and each condition that says something else than before.
func passes(c *core, times int, said map[string]string) string {
	var b strings.Builder
	for range times {
		changes := c.pass()
		for _, change := range changes {
			fmt.Fprintln(&b, change)
		}
		for _, r := range c.rsp.GetResults() {
			if r.GetSeverity() != fnv1.Severity_SEVERITY_FATAL {
				fmt.Fprintf(&b, "event %s: %s\n", r.GetReason(), r.GetMessage())
			}
		}
		for _, cond := range c.rsp.GetConditions() {
			status := strings.TrimPrefix(cond.GetStatus().String(), "STATUS_CONDITION_")
			says := fmt.Sprintf("%s=%s %s", cond.GetType(), strings.ToUpper(status[:1])+strings.ToLower(status[1:]), cond.GetReason())
			if cond.GetMessage() != "" {
				says += ": " + cond.GetMessage()
			}
			if said[cond.GetType()] != says {
				fmt.Fprintln(&b, "  "+says)
				said[cond.GetType()] = says
			}
		}
	}
	if b.Len() == 0 {
		return "nothing changes\n"
	}
	return b.String()
}

// detailsOf the topology itself, which Crossplane publishes for a claim.
func detailsOf(c *core) string {
	details := c.rsp.GetDesired().GetComposite().GetConnectionDetails()
	keys := make([]string, 0, len(details))
	for key, value := range details {
		keys = append(keys, key+"="+string(value))
	}
	slices.Sort(keys)
	return strings.Join(keys, "\n") + "\n"
}

// declare what is written in a short form, one line each:
//
//	controlplanes <count>: <names>
//	pool <name>: <names>
//	unapproved: <names>
//	removals: <names>
//	address <name> <address>
//	unreachable <name> <policy>
//	set <field of spec> <value>
//	allow-delete
func (c *core) declare(text string, claim bool) error {
	spec := map[string]any{
		"endpoint": "https://192.0.2.10:6443",
		"versions": map[string]any{"talos": "v1.13.9", "kubernetes": "v1.35.4"},
	}
	var pools []any
	machines := map[string]map[string]any{}
	add := func(names string) []any {
		fields := strings.Fields(names)
		out := make([]any, 0, len(fields))
		for _, name := range fields {
			m := map[string]any{"name": name, "address": name + ".example.org", "approved": true}
			machines[name] = m
			out = append(out, m)
		}
		return out
	}
	c.xr.SetAnnotations(nil)
	for _, line := range strings.Split(strings.TrimSpace(text), "\n") {
		head, names, _ := strings.Cut(line, ":")
		words := strings.Fields(head)
		switch words[0] {
		case "controlplanes":
			count := 0
			fmt.Sscan(words[1], &count)
			spec["controlPlanes"] = map[string]any{"count": int64(count), "install": map[string]any{"disk": "/dev/sda"}, "machines": add(names)}
		case "pool":
			pools = append(pools, map[string]any{"name": words[1], "install": map[string]any{"disk": "/dev/sda"}, "machines": add(names)})
		case "unapproved":
			for _, name := range strings.Fields(names) {
				delete(machines[name], "approved")
			}
		case "removals":
			removals := []any{}
			for _, name := range strings.Fields(names) {
				removals = append(removals, name)
			}
			spec["removals"] = removals
		case "address":
			machines[words[1]]["address"] = words[2]
		case "unreachable":
			machines[words[1]]["unreachable"] = map[string]any{"policy": words[2]}
		case "set":
			spec[words[1]] = strings.TrimSpace(strings.SplitN(line, words[1], 2)[1])
		case "allow-delete":
			c.xr.SetAnnotations(map[string]string{v1alpha1.AnnotationAllowDelete: "true"})
		default:
			return fmt.Errorf("a topology has no %q", line)
		}
	}
	if len(pools) > 0 {
		spec["pools"] = pools
	}
	if claim {
		c.xr.SetKind("XTalosTopology")
		c.xr.SetNamespace("")
		c.xr.SetName("prod-x7k2p")
		spec["claimRef"] = map[string]any{"apiVersion": "topology.ichor.maesh.dev/v1alpha1", "kind": "TalosTopologyClaim", "name": "prod", "namespace": "default"}
	}
	c.xr.Object["spec"] = spec
	return nil
}
