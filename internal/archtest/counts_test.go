package archtest

import (
	"go/ast"
	"go/types"
	"maps"
	"slices"
)

// tellers are the functions that tell which machines count as control planes: of objects, and of facts.
var tellers = []string{"apis/v1alpha1.TalosMachine.IsApprovedControlPlane", "internal/decide/facts.Machine.IsApprovedControlPlane"}

// wrongCounts finds functions that tell by themselves which machines count as control planes: those that read both whether
// a machine is approved and whether it is a control plane. Two ways to count are two opinions about quorum. It is a guess by
// what a function reads, so it misses one that is spread over functions. The composition function may: it reads documents, and
// its count only keeps it from asking in vain for what the guards decide.
func wrongCounts(t *tree) []problem { return t.wrongCounts(tellers) }

func (t *tree) wrongCounts(tellers []string) []problem {
	var found []problem
	seen := map[string]bool{}
	for _, p := range t.product() {
		if within(p.PkgPath, append(slices.Clone(onlyInTests), module+"/internal/topology")...) {
			continue
		}
		reads := map[string]map[string]*ast.Ident{}
		uses(p, func(id *ast.Ident, used types.Object, by string) {
			if what := partOfCount(used); what != "" {
				if reads[by] == nil {
					reads[by] = map[string]*ast.Ident{}
				}
				reads[by][what] = id
			}
		})
		for _, by := range slices.Sorted(maps.Keys(reads)) {
			if len(reads[by]) < 2 {
				continue
			}
			seen[by] = true
			if !slices.Contains(tellers, by) {
				found = append(found, t.problem(reads[by]["approved"].Pos(), "%s tells control planes by itself: that is for %s", by, someone(tellers)))
			}
		}
	}
	for _, f := range tellers {
		if !seen[f] {
			found = append(found, stale("%s does not tell control planes any more", f))
		}
	}
	return found
}

// partOfCount says which of the two questions an object answers: approved, or role; empty if none.
func partOfCount(o types.Object) string {
	switch o := o.(type) {
	case *types.Var:
		if o.IsField() && o.Name() == "Approved" && types.Identical(o.Type(), types.Typ[types.Bool]) {
			return "approved"
		}
	case *types.Const:
		if o.Pkg() != nil && within(o.Pkg().Path(), apis, decisions) && (o.Name() == "ControlPlane" || o.Name() == "RoleControlPlane") {
			return "role"
		}
	}
	return ""
}
