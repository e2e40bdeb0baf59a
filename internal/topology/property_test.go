package topology

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/crossplane/crossplane-runtime/v2/pkg/logging"
	fnv1 "github.com/crossplane/function-sdk-go/proto/v1"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/maesh/provider-ichor/apis/v1alpha1"
)

// TestNothingFallsOut lets people, the provider and accidents do anything in any order. Whatever happens, no machine leaves
// the desired state unless its removal was asked for by name and its permission was seen, and one at a time.
func TestNothingFallsOut(t *testing.T) {
	moved := map[string]int{}
	rapid.Check(t, func(t *rapid.T) {
		c := newCore(t)
		declareAny(t, c)
		steps := rapid.IntRange(5, 25).Draw(t, "steps")
		for range steps {
			switch rapid.SampledFrom([]string{"declare", "settle", "tell", "pass", "remove", "work", "work"}).Draw(t, "step") {
			case "declare":
				declareAny(t, c)
			case "settle":
				c.settle()
			case "tell":
				tellAny(t, c)
			case "work":
				c.settle()
				checkPass(t, c, moved)
			case "remove":
				// As people do it: ask, and let the provider work.
				c.ask(rapid.SampledFrom(names).Draw(t, "who"))
				for range 3 {
					checkPass(t, c, moved)
					c.settle()
				}
			case "pass":
				c.blind = rapid.IntRange(0, 9).Draw(t, "blind") == 0
				checkPass(t, c, moved)
			}
		}
	})
	// A property that never saw a removal, or a refusal, would prove nothing.
	t.Logf("seen: %v", moved)
	for _, what := range []string{"dropped", "kept", "fatal", "going"} {
		if moved[what] == 0 {
			t.Errorf("no machine was ever %s: %v", what, moved)
		}
	}
}

// checkPass makes one pass and holds it against what must always be true.
func checkPass(t *rapid.T, c *core, moved map[string]int) {
	going, alive := 0, map[string]bool{}
	for _, m := range c.machines() {
		name := m.GetAnnotations()[annotationResourceName]
		if m.GetDeletionTimestamp() != nil {
			going++
		}
		for _, ref := range c.refs {
			if ref == name && m.GetDeletionTimestamp() == nil && m.GetOwnerReferences()[0].UID == c.xr.GetUID() {
				alive[name] = m.GetAnnotations()[v1alpha1.AnnotationAllowDelete] == "true"
			}
		}
	}
	_, hadSecret := c.objects[nameConnection]
	before := len(c.refs)
	c.pass()
	again := deterministic(t, c)
	if fatal(c.rsp) != "" {
		moved["fatal"]++
		if !proto.Equal(c.rsp.GetDesired(), c.req.GetDesired()) {
			t.Fatal("a fatal answer desires something else than it was given")
		}
		if len(c.refs) != before {
			t.Fatal("a fatal answer changed something")
		}
		return
	}
	desired := again.GetDesired().GetResources()
	dropped := 0
	asked := askedOf(c)
	for name, allowed := range alive {
		switch {
		case desired[name] != nil:
			if !strings.Contains(fmt.Sprint(c.xr.Object["spec"]), "name:"+strings.TrimPrefix(name, prefixMachine)) {
				moved["kept"]++
			}
			continue
		case !allowed || !asked[strings.TrimPrefix(name, prefixMachine)]:
			t.Fatalf("%s fell out (allowed: %t, asked: %v)", name, allowed, asked)
		case c.blind:
			t.Fatalf("%s was dropped although it was not known who else is going", name)
		}
		dropped++
		moved["dropped"]++
	}
	if dropped > 1 || (dropped == 1 && going > 0) {
		t.Fatalf("%d machines were dropped while %d were going", dropped, going)
	}
	if going > 0 {
		moved["going"]++
	}
	if desired[nameCluster] == nil || (hadSecret && desired[nameConnection] == nil) {
		t.Fatal("the cluster or its Secret fell out")
	}
}

// deterministic runs the function on the last request again. The same request gets the same bytes.
func deterministic(t *rapid.T, c *core) *fnv1.RunFunctionResponse {
	rsp, err := NewFunction(logging.NewNopLogger()).RunFunction(context.Background(), proto.Clone(c.req).(*fnv1.RunFunctionRequest))
	if err != nil {
		t.Fatal(err)
	}
	m := proto.MarshalOptions{Deterministic: true}
	one, _ := m.Marshal(c.rsp)
	two, _ := m.Marshal(rsp)
	if !bytes.Equal(one, two) {
		t.Fatalf("the same request got two answers:\n%v\n%v", c.rsp, rsp)
	}
	return rsp
}

func askedOf(c *core) map[string]bool {
	asked := map[string]bool{}
	removals, _ := c.xr.Object["spec"].(map[string]any)["removals"].([]any)
	for _, name := range removals {
		asked[name.(string)] = true
	}
	return asked
}

// names that machines may have. The last one is never listed.
var names = []string{"cp-1", "cp-2", "cp-3", "cp-4", "cp-5", "w-1", "w-2", "w-3", "w-9"}

// ask for one removal, and for no other.
func (c *core) ask(name string) {
	c.xr.Object["spec"].(map[string]any)["removals"] = []any{name}
}

// declareAny lists any machines, asks for any removals and makes any mistake.
func declareAny(t *rapid.T, c *core) {
	cps := rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"cp-1", "cp-2", "cp-3", "cp-4", "cp-5"}), rapid.SampledFrom([]int{1, 2, 3, 1, 2, 3, 0}).Draw(t, "atLeast"), 5, rapid.ID[string]).Draw(t, "controlplanes")
	workers := rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"w-1", "w-2", "w-3"}), 0, 3, rapid.ID[string]).Draw(t, "workers")
	removals := rapid.SliceOfNDistinct(rapid.SampledFrom(names), 0, 4, rapid.ID[string]).Draw(t, "removals")
	text := fmt.Sprintf("controlplanes %d: %s\npool a: %s\nremovals: %s", rapid.SampledFrom([]int{1, 1, 1, 1, 1, 1, 3, 3, 2}).Draw(t, "count"),
		strings.Join(cps, " "), strings.Join(workers, " "), strings.Join(removals, " "))
	listed := append(append([]string{}, cps...), workers...)
	if len(listed) > 0 && rapid.Bool().Draw(t, "unapproved") {
		text += "\nunapproved: " + rapid.SampledFrom(listed).Draw(t, "who")
	}
	if rapid.IntRange(0, 9).Draw(t, "allow-delete") == 0 {
		text += "\nallow-delete"
	}
	if err := c.declare(text, false); err != nil {
		t.Fatal(err)
	}
}

// tellAny lets anything happen to any object.
func tellAny(t *rapid.T, c *core) {
	if len(c.objects) == 0 {
		return
	}
	name := rapid.SampledFrom(c.names()).Draw(t, "object")
	what := rapid.SampledFrom([]string{
		"gone", "deleted", "allowed", "stale", "dark", "lost", "uid", "Ready=False/Booting", "Ready=True/Available", "Reachable=False/Unreachable",
		"Removable=True/Removable", "Removable=False/NotAllowed", "Removable=False/QuorumWouldBreak", "Transitioning=False/Stable",
	}).Draw(t, "what")
	if c.objects[name].GetKind() != v1alpha1.TalosMachineKind && (what == "allowed" || what == "uid") {
		return
	}
	if err := c.tell(name, what); err != nil {
		t.Fatal(err)
	}
}
