package archtest

import (
	"go/ast"
	"go/types"
	"maps"
	"slices"
	"strconv"

	"golang.org/x/tools/go/packages"
)

// A layer is one package, or a package and those below it: what of this module it may import, and what it must never
// import of others, with the reason. A package of this module that is not named may not be imported.
type layer struct {
	imports []string
	never   map[string]string
}

// What must never be imported, where the same holds for more than one layer.
var (
	noKubernetes = map[string]string{
		"k8s.io/client-go": "it knows nothing of Kubernetes", "k8s.io/api": "it knows nothing of Kubernetes",
		"sigs.k8s.io/controller-runtime": "it knows nothing of Kubernetes", "github.com/crossplane": "it knows nothing of Crossplane",
	}
	noTalosAPI = map[string]string{
		machinery + "/api": "internal/talos is the only door to a Talos API", machinery + "/client": "internal/talos is the only door to a Talos API",
		"google.golang.org/grpc": "internal/talos is the only door to a Talos API",
	}
	noGRPC      = map[string]string{"google.golang.org/grpc": "it speaks to nobody", "sigs.k8s.io/controller-runtime": "it speaks to nobody"}
	noReconcile = map[string]string{"github.com/crossplane/crossplane-runtime/v2/pkg/reconciler": "only controllers reconcile"}
)

// layout is CONTRIBUTING's layout with its arrows. It lists what is imported, so that a new arrow is a line here that
// somebody reads.
var layout = map[string]layer{
	"apis/v1alpha1": {never: both(noTalosAPI, noReconcile)},

	"internal/decide/facts":       {},
	"internal/decide/quorum":      {},
	"internal/decide/permit":      {imports: []string{"internal/decide/facts"}},
	"internal/decide/story":       {imports: []string{"internal/decide/facts"}},
	"internal/decide/modelcheck":  {},
	"internal/decide/membership":  {imports: []string{"internal/decide/facts"}},
	"internal/decide/deleteguard": {imports: []string{"internal/decide/facts", "internal/decide/membership", "internal/decide/quorum"}},
	"internal/decide/bootstrap":   {imports: []string{"internal/decide/deleteguard", "internal/decide/facts", "internal/decide/membership", "internal/decide/permit"}},
	"internal/decide/configchange": {imports: []string{
		"internal/decide/deleteguard", "internal/decide/facts", "internal/decide/membership", "internal/decide/permit", "internal/decide/quorum",
	}},
	"internal/decide/removal": {imports: []string{"internal/decide/deleteguard", "internal/decide/facts", "internal/decide/membership", "internal/decide/permit"}},

	"internal/survey": {
		imports: []string{"apis/v1alpha1", "internal/connect", "internal/decide/facts", "internal/talos"},
		never:   both(noTalosAPI, noReconcile),
	},
	"internal/act": {
		imports: []string{"apis/v1alpha1", "internal/decide/configchange", "internal/decide/facts", "internal/decide/permit", "internal/decide/removal", "internal/talos"},
		never:   both(noTalosAPI, noReconcile),
	},
	"internal/clusterlock":   {never: both(noTalosAPI, map[string]string{machinery: "a mutex knows nothing of Talos", "github.com/crossplane": "a mutex knows nothing of Crossplane"})},
	"internal/disruption":    {imports: []string{"internal/clusterlock", "internal/decide/quorum", "internal/survey"}, never: noTalosAPI},
	"internal/talos":         {never: noKubernetes},
	"internal/machineconfig": {never: both(noKubernetes, noGRPC)},
	"internal/connect": {
		imports: []string{"apis/v1alpha1", "internal/machineconfig", "internal/talos"},
		never:   both(noTalosAPI, noReconcile),
	},
	"internal/metrics": {never: both(noTalosAPI, noReconcile)},
	"internal/version": {},
	"internal/webhook": {
		imports: []string{"apis/v1alpha1", "internal/decide/deleteguard", "internal/decide/facts", "internal/survey"},
		never:   both(noTalosAPI, noReconcile),
	},

	"internal/controller": {
		imports: []string{
			"apis/v1alpha1", "internal/clusterlock", "internal/connect", "internal/disruption", "internal/survey", "internal/talos",
			"internal/controller/providerconfig", "internal/controller/taloscluster", "internal/controller/talosmachine",
		},
		never: noTalosAPI,
	},
	"internal/controller/lagging":        {never: noTalosAPI},
	"internal/controller/waiting":        {never: noTalosAPI},
	"internal/controller/providerconfig": {imports: []string{"apis/v1alpha1"}, never: noTalosAPI},
	"internal/controller/taloscluster": {
		imports: []string{
			"apis/v1alpha1", "internal/act", "internal/clusterlock", "internal/connect", "internal/controller/waiting", "internal/decide/bootstrap",
			"internal/decide/deleteguard", "internal/decide/facts", "internal/decide/permit", "internal/decide/quorum", "internal/disruption",
			"internal/machineconfig", "internal/metrics", "internal/survey", "internal/talos",
		},
		never: noTalosAPI,
	},
	"internal/controller/talosmachine": {
		imports: []string{
			"apis/v1alpha1", "internal/act", "internal/clusterlock", "internal/connect", "internal/controller/waiting", "internal/decide/configchange",
			"internal/decide/deleteguard", "internal/decide/facts", "internal/decide/membership", "internal/decide/removal", "internal/disruption",
			"internal/machineconfig", "internal/metrics", "internal/survey", "internal/talos",
		},
		never: noTalosAPI,
	},
	"cmd/provider": {
		imports: []string{"internal/commandline", "internal/controller", "internal/controller/waiting", "internal/metrics", "internal/talos", "internal/version", "internal/webhook"},
		never:   noTalosAPI,
	},

	// The other side. It shares no opinion with the product, or a wrong one would pass its own test: of the product it may
	// know the kinds, which users write too, and nothing else.
	"internal/simulator":            {imports: []string{"internal/lab/controlplane", "internal/simulator/etcdmember", "internal/simulator/workload"}},
	"internal/simulator/control":    {imports: []string{"internal/simulator"}},
	"internal/simulator/etcdmember": {},
	"internal/simulator/workload":   {imports: []string{"internal/lab/controlplane"}},
	"internal/lab":                  {imports: []string{"internal/lab/controlplane", "internal/lab/tools"}, never: noTalosAPI},
	// The demo reads configurations back from machines, and there is one door to them.
	"internal/lab/demo": {imports: []string{"apis/v1alpha1", "internal/lab", "internal/lab/story", "internal/talos"}, never: noTalosAPI},
	// It runs tests, and knows of what they test only how the model check and the crash sweep tell their results.
	"internal/lab/prove": {imports: []string{"internal/decide/modelcheck", "internal/lab/crashsweep"}, never: noTalosAPI},
	// A campaign makes requests as users do, and is judged by what machines and etcd tell.
	"internal/lab/soak": {imports: []string{"apis/v1alpha1", "internal/lab", "internal/lab/story"}, never: noTalosAPI},
	// A sweep makes requests as users do, and is judged by what judges campaigns.
	"internal/lab/crashsweep":   {imports: []string{"apis/v1alpha1", "internal/lab", "internal/lab/controlplane", "internal/lab/soak"}, never: noTalosAPI},
	"internal/lab/controlplane": {imports: []string{"internal/lab/tools"}, never: noTalosAPI},
	"internal/lab/crossplane":   {imports: []string{"internal/lab/controlplane", "internal/lab/tools"}, never: noTalosAPI},
	"internal/lab/e2e":          {imports: []string{"apis/topology/v1alpha1", "apis/v1alpha1", "internal/lab", "internal/lab/crossplane", "internal/lab/flux", "internal/lab/story", "internal/xpkg"}, never: noTalosAPI},
	"internal/lab/flux":         {imports: []string{"internal/lab/controlplane", "internal/lab/tools"}, never: noTalosAPI},
	"internal/lab/story":        {imports: []string{"internal/lab"}, never: noTalosAPI},
	"internal/lab/tools":        {never: both(noTalosAPI, noKubernetes)},
	"cmd/lab":                   {imports: []string{"internal/bench", "internal/commandline", "internal/lab", "internal/lab/controlplane", "internal/lab/crashsweep", "internal/lab/demo", "internal/lab/e2e", "internal/lab/prove", "internal/lab/soak", "internal/lab/tools"}, never: noTalosAPI},
	"cmd/talossim":              {imports: []string{"internal/commandline", "internal/lab/controlplane", "internal/simulator", "internal/simulator/control"}, never: noTalosAPI},
	"internal/bench":            {imports: []string{"apis/v1alpha1", "internal/lab"}, never: noTalosAPI},

	// The composition function writes documents. What may go is decided by the provider that reads them.
	"apis/topology/v1alpha1":      {imports: []string{"apis/v1alpha1"}, never: both(noTalosAPI, noReconcile)},
	"internal/topology":           {imports: []string{"apis/topology/v1alpha1", "apis/v1alpha1"}, never: noReconcile},
	"cmd/function-ichor-topology": {imports: []string{"internal/commandline", "internal/topology", "internal/version"}, never: noReconcile},

	"internal/commandline": {never: both(noTalosAPI, noKubernetes)},

	// Packages are made of files and of what the compiler makes of cmd/.
	"internal/xpkg": {never: noTalosAPI},
	"cmd/xpkg":      {imports: []string{"internal/commandline", "internal/xpkg"}, never: noTalosAPI},

	"internal/archtest":  {},
	"hack/xrd":           {imports: []string{"apis/topology/v1alpha1"}},
	"hack/reference":     {},
	"internal/accidents": {},
	"internal/faulttest": {},
	"internal/gitops":    {},
}

func both(a, b map[string]string) map[string]string {
	out := maps.Clone(a)
	maps.Copy(out, b)
	return out
}

// wrongLayout finds imports that the layout does not have, and lines of the layout that say nothing of the tree.
func wrongLayout(t *tree) []problem { return t.wrongLayout(layout) }

func (t *tree) wrongLayout(layout map[string]layer) []problem {
	var found []problem
	unseen := map[string]bool{}
	for pkg, l := range layout {
		unseen[pkg] = true
		for _, i := range l.imports {
			unseen[pkg+" importing "+i] = true
		}
		for path := range l.never {
			if !t.needs(path) {
				found = append(found, stale("%s must never import %s, which nothing of this module needs any more", pkg, path))
			}
		}
	}
	for _, p := range t.packages {
		pkg := short(p.PkgPath)
		delete(unseen, pkg)
		l, listed := layout[pkg]
		if !listed {
			found = append(found, t.problem(p.Syntax[0].Package, "%s is not in the layout: say there what it may import", pkg))
			continue
		}
		for _, syntax := range p.Syntax {
			for _, i := range syntax.Imports {
				path := importPath(i)
				delete(unseen, pkg+" importing "+short(path))
				if why := l.forbids(path); why != "" {
					found = append(found, t.problem(i.Pos(), "%s imports %s: %s", pkg, short(path), why))
				}
			}
		}
	}
	for _, line := range slices.Sorted(maps.Keys(unseen)) {
		found = append(found, stale("the layout has %s, and the tree has not", line))
	}
	return found
}

// forbids says why a package may not import a path; empty if it may.
func (l layer) forbids(path string) string {
	if within(path, module) && !slices.Contains(l.imports, short(path)) {
		return "the layout has no such arrow"
	}
	for _, prefix := range slices.Sorted(maps.Keys(l.never)) {
		if within(path, prefix) {
			return l.never[prefix]
		}
	}
	return ""
}

// needs tells whether anything that this module is built from has the path, or is below it.
func (t *tree) needs(path string) bool {
	for p := range t.graph {
		if within(p, path) {
			return true
		}
	}
	return false
}

func importPath(i *ast.ImportSpec) string {
	path, err := strconv.Unquote(i.Path.Value)
	if err != nil {
		return i.Path.Value // No path: nothing allows it.
	}
	return path
}

// pure are the packages of the standard library that decisions are made of. depguard has the same list and sees direct
// imports only.
var pure = []string{"cmp", "errors", "fmt", "maps", "slices", "strings", "time"}

// impureDecisions finds what decide imports besides itself and pure. Since it looks at all of decide, nothing else comes in by
// way of others either. What decisions cannot import they cannot read: no clock but the survey's, no network, no log.
func impureDecisions(t *tree) []problem {
	const decide = module + "/internal/decide"
	var found []problem
	for _, p := range t.packages {
		if !within(p.PkgPath, decide) {
			continue
		}
		for _, syntax := range p.Syntax {
			for _, i := range syntax.Imports {
				path := importPath(i)
				if slices.Contains(pure, path) || within(path, decide) {
					continue
				}
				found = append(found, t.problem(i.Pos(), "a decision imports %s", path))
			}
		}
		found = append(found, t.impureUses(p)...)
	}
	return found
}

// impureUses finds what a decision uses of the pure packages that is not pure.
func (t *tree) impureUses(p *packages.Package) []problem {
	var found []problem
	uses(p, func(id *ast.Ident, used types.Object, by string) {
		f, ok := used.(*types.Func)
		if !ok || f.Pkg() == nil || f.Signature().Recv() != nil {
			return
		}
		switch f.Pkg().Path() + "." + f.Name() {
		case "time.Now", "time.Since", "time.Until", "time.Sleep", "time.After", "time.AfterFunc", "time.NewTimer", "time.NewTicker", "time.Tick",
			"fmt.Print", "fmt.Println", "fmt.Printf", "fmt.Scan", "fmt.Scanf", "fmt.Scanln":
			found = append(found, t.problem(id.Pos(), "%s uses %s.%s: facts in, verdict out", by, f.Pkg().Path(), f.Name()))
		}
	})
	return found
}
