package archtest

import (
	"go/ast"
	"go/types"
	"maps"
	"slices"
)

// declared are the interfaces that may declare Acquire, and why.
var declared = map[string]string{
	"internal/disruption.Locks":              "the only way to a cluster's lock",
	"internal/controller/taloscluster.Locks": "what stands before the gate: it takes the lock of a bootstrap through disruption",
}

// wrongInterfaces finds interfaces that declare a method which disturbs or destroys: a machine or a lock that is assigned to
// one could be called through it, unseen by wrongCalls. Only act declares them, one a step, and demands the proofs.
func wrongInterfaces(t *tree) []problem { return t.wrongInterfaces(declared) }

func (t *tree) wrongInterfaces(declared map[string]string) []problem {
	unseen := maps.Clone(declared)
	forbidden := doors()
	forbidden["Acquire"] = true
	var found []problem
	for _, p := range t.product() {
		if within(short(p.PkgPath), "internal/act") {
			continue
		}
		for _, syntax := range p.Syntax {
			names := typeNames(p.TypesInfo.Defs, syntax)
			ast.Inspect(syntax, func(n ast.Node) bool {
				it, ok := n.(*ast.InterfaceType)
				if !ok {
					return true
				}
				for _, m := range it.Methods.List {
					for _, id := range m.Names {
						f, ok := p.TypesInfo.Defs[id].(*types.Func)
						if !ok || !forbidden[id.Name] || demandsPermit(f.Signature()) {
							continue
						}
						if id.Name == "Acquire" && declared[names[it]] != "" {
							delete(unseen, names[it])
							continue
						}
						found = append(found, t.problem(id.Pos(), "an interface outside of internal/act declares %s", id.Name))
					}
				}
				return true
			})
		}
	}
	for _, n := range slices.Sorted(maps.Keys(unseen)) {
		found = append(found, stale("%s may declare Acquire and does not", n))
	}
	return found
}

// typeNames are the full names of the interface types that have one.
func typeNames(defs map[*ast.Ident]types.Object, syntax *ast.File) map[*ast.InterfaceType]string {
	names := map[*ast.InterfaceType]string{}
	ast.Inspect(syntax, func(n ast.Node) bool {
		if s, ok := n.(*ast.TypeSpec); ok {
			if it, ok := s.Type.(*ast.InterfaceType); ok {
				names[it] = short(defs[s.Name].Pkg().Path()) + "." + s.Name.Name
			}
		}
		return true
	})
	return names
}

// wrongFields finds fields and package variables that hold something which disturbs or destroys. It is opened for one step
// and given to act, so that nothing that lives longer than a step has it in its hands.
func wrongFields(t *tree) []problem {
	forbidden := doors()
	forbidden["Acquire"] = true
	var found []problem
	for _, p := range t.product() {
		if within(short(p.PkgPath), "internal/act", "internal/talos", "internal/clusterlock") {
			continue
		}
		for id, o := range p.TypesInfo.Defs {
			v, ok := o.(*types.Var)
			if !ok || (!v.IsField() && v.Parent() != p.Types.Scope()) {
				continue
			}
			if m := holds(v.Type(), forbidden); m != "" {
				found = append(found, t.problem(id.Pos(), "%s holds a %s, which has %s", v.Name(), types.TypeString(v.Type(), types.RelativeTo(p.Types)), m))
			}
		}
	}
	return found
}

// holds returns the first method of a type that is forbidden, or nothing.
func holds(t types.Type, forbidden map[string]bool) string {
	if n, ok := types.Unalias(t).(*types.Named); ok && declared[short(types.TypeString(n, nil))] != "" {
		return ""
	}
	set := types.NewMethodSet(t)
	for m := range set.Methods() {
		f, ok := m.Obj().(*types.Func)
		if ok && forbidden[f.Name()] && !demandsPermit(f.Signature()) && f.Pkg() != nil && within(f.Pkg().Path(), module, machinery) {
			return f.Name()
		}
	}
	return ""
}
