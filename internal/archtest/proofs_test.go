package archtest

import (
	"go/ast"
	"go/types"
)

// provers are what demands the lock and the permit. A step uses one of them before its call.
var provers = map[string]bool{
	"internal/act.Actor.permitted":                true,
	"internal/act.Actor.irreversible":             true,
	"internal/decide/permit.Permit.Check":         true,
	"internal/act.prove internal/act.applyConfig": true, // Its callers demand the rest, where it is needed at all.
}

// unprovenSteps finds functions of act that disturb or destroy without having demanded a proof before, in the order in
// which they are written. That the proof is heeded is for the tests of act.
func unprovenSteps(t *tree) []problem {
	doors := doors()
	var found []problem
	for _, p := range t.packages {
		if p.PkgPath != module+"/internal/act" {
			continue
		}
		proven := map[string]bool{}
		uses(p, func(id *ast.Ident, used types.Object, by string) {
			f, ok := used.(*types.Func)
			if !ok {
				return
			}
			if callee := name(f); provers[callee] || provers[callee+" "+by] {
				proven[by] = true
			} else if guarded(f, doors) && within(f.Pkg().Path(), module) && !proven[by] {
				found = append(found, t.problem(id.Pos(), "%s uses %s before it has demanded a proof", by, callee))
			}
		})
	}
	return found
}
