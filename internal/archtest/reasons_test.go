package archtest

import (
	"go/ast"
	"go/constant"
	"go/types"
	"maps"
	"slices"
	"strings"

	"golang.org/x/tools/go/packages"
)

const (
	apis      = module + "/apis/v1alpha1"
	decisions = module + "/internal/decide"
	xp        = "github.com/crossplane/crossplane/apis/v2/core/v2"
)

// stepNames are enums whose names users see as reasons.
var stepNames = []string{decisions + "/removal.Step"}

// wrongReasons finds reasons that users see and that no constant of the API documents, and constants that nobody shows.
// What users see is every decide type that the product converts to a condition's reason, and the names of steps.
func wrongReasons(t *tree) []problem {
	shown, found := t.shownTypes()
	documented, undocumented := t.documented()
	found = append(found, undocumented...)
	used := t.usedConstants()
	values := map[string]bool{}
	for _, p := range t.packages {
		for id, o := range p.TypesInfo.Defs {
			c, ok := o.(*types.Const)
			if !ok || c.Parent() != p.Types.Scope() {
				continue
			}
			var value string
			switch typ := types.TypeString(c.Type(), nil); {
			case shown[typ]:
				value = constant.StringVal(c.Val())
			case slices.Contains(stepNames, typ):
				value = c.Name()
			default:
				continue
			}
			values[value] = true
			if documented[value] == nil {
				found = append(found, t.problem(id.Pos(), "users see the reason %q, which apis/v1alpha1 does not document", value))
			}
		}
	}
	for _, value := range slices.Sorted(maps.Keys(documented)) {
		if c := documented[value]; !values[value] && !used[c.Name()] {
			found = append(found, t.problem(c.Pos(), "nothing ever shows the reason %q", value))
		}
	}
	return found
}

// shownTypes are the types of decide that are converted to a condition's reason.
func (t *tree) shownTypes() (map[string]bool, []problem) {
	shown := map[string]bool{}
	for _, p := range t.product() {
		for _, syntax := range p.Syntax {
			ast.Inspect(syntax, func(n ast.Node) bool {
				call, ok := n.(*ast.CallExpr)
				if !ok || len(call.Args) != 1 {
					return true
				}
				fun := p.TypesInfo.Types[call.Fun]
				if fun.IsType() && types.TypeString(fun.Type, nil) == xp+".ConditionReason" {
					if arg := types.TypeString(p.TypesInfo.TypeOf(call.Args[0]), nil); within(arg, decisions) {
						shown[arg] = true
					}
				}
				return true
			})
		}
	}
	if len(shown) == 0 {
		return shown, []problem{stale("no type of decide becomes a condition's reason any more")}
	}
	return shown, nil
}

// documented are the reasons of the API by value. A constant without a comment, or with one that does not begin with its
// name, and a value that two constants have, are problems.
func (t *tree) documented() (map[string]*types.Const, []problem) {
	byValue := map[string]*types.Const{}
	var found []problem
	t.constants(apis, func(p *packages.Package, spec *ast.ValueSpec, c *types.Const) {
		if !strings.HasPrefix(types.TypeString(c.Type(), nil), xp+".Condition") {
			return
		}
		if spec.Doc == nil || !strings.HasPrefix(spec.Doc.Text(), c.Name()+" ") {
			found = append(found, t.problem(spec.Pos(), "%s has no comment that begins with its name", c.Name()))
		}
		if types.TypeString(c.Type(), nil) != xp+".ConditionReason" {
			return
		}
		value := constant.StringVal(c.Val())
		if other := byValue[value]; other != nil {
			found = append(found, t.problem(spec.Pos(), "%s and %s are the same reason %q", c.Name(), other.Name(), value))
		}
		byValue[value] = c
	})
	return byValue, found
}

// constants calls fn with each constant of a package.
func (t *tree) constants(path string, fn func(p *packages.Package, spec *ast.ValueSpec, c *types.Const)) {
	for _, p := range t.packages {
		if p.PkgPath != path {
			continue
		}
		for _, syntax := range p.Syntax {
			ast.Inspect(syntax, func(n ast.Node) bool {
				spec, ok := n.(*ast.ValueSpec)
				if !ok {
					return true
				}
				for _, id := range spec.Names {
					if c, ok := p.TypesInfo.Defs[id].(*types.Const); ok {
						fn(p, spec, c)
					}
				}
				return true
			})
		}
	}
}

// usedConstants are the names of the API's constants that the product uses.
func (t *tree) usedConstants() map[string]bool {
	used := map[string]bool{}
	for _, p := range t.product() {
		uses(p, func(_ *ast.Ident, o types.Object, _ string) {
			if c, ok := o.(*types.Const); ok && c.Pkg() != nil && c.Pkg().Path() == apis {
				used[c.Name()] = true
			}
		})
	}
	return used
}
