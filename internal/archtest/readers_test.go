package archtest

import (
	"go/ast"
	"go/token"
	"go/types"
	"maps"
	"slices"

	"golang.org/x/tools/go/packages"
)

const clientPackage = "sigs.k8s.io/controller-runtime/pkg/client"

// cached are the functions that are given a cached reader, and why that is right.
var cached = map[string]string{
	"internal/survey.Surveyor.WithCache":              "overviews are for status only, and each looks at every TalosMachine there is",
	"internal/controller/talosmachine.newNodeWatches": "it tells whom a Node belongs to, to wake a pass that looks for itself",
	"internal/controller/talosmachine.ofCluster":      "it tells which machines to wake when a cluster changes",
	"internal/controller/talosmachine.waitingForLock": "it tells which machines to wake when a lock is free",
}

// wrongReaders finds values that become a client.Reader in the product and do not come from GetAPIReader. The type is the
// promise: what decides reads through a client.Reader, and a cached read may lag behind a decision that was just made. So
// nothing else, a client least of all, may be converted to one, in whatever way it is handed on.
func wrongReaders(t *tree) []problem { return t.wrongReaders(cached) }

func (t *tree) wrongReaders(cached map[string]string) []problem {
	var found []problem
	seen := 0
	unseen := maps.Clone(cached)
	for _, p := range t.product() {
		c := readers{tree: t, pkg: p, cached: cached, unseen: unseen}
		for _, syntax := range p.Syntax {
			ast.PreorderStack(syntax, nil, c.visit)
		}
		found = append(found, c.found...)
		seen += c.seen
	}
	if seen == 0 {
		found = append(found, stale("nothing in the product calls GetAPIReader"))
	}
	for _, f := range slices.Sorted(maps.Keys(unseen)) {
		found = append(found, stale("%s may be given a cached reader and is not", f))
	}
	return found
}

type readers struct {
	tree  *tree
	pkg   *packages.Package
	found []problem
	// cached are the functions that may be given anything, unseen those of them that nothing called yet.
	cached, unseen map[string]string
	// seen counts the calls of GetAPIReader.
	seen int
}

func (c *readers) visit(n ast.Node, stack []ast.Node) bool {
	switch n := n.(type) {
	case *ast.CallExpr:
		c.call(n)
	case *ast.CompositeLit:
		c.literal(n)
	case *ast.AssignStmt:
		if n.Tok == token.ASSIGN && len(n.Lhs) == len(n.Rhs) {
			for i := range n.Lhs {
				c.convert(c.pkg.TypesInfo.TypeOf(n.Lhs[i]), n.Rhs[i])
			}
		}
	case *ast.ValueSpec:
		for _, v := range n.Values {
			if n.Type != nil {
				c.convert(c.pkg.TypesInfo.TypeOf(n.Type), v)
			}
		}
	case *ast.ReturnStmt:
		if s := c.enclosing(stack); s != nil && s.Results().Len() == len(n.Results) {
			for i, r := range n.Results {
				c.convert(s.Results().At(i).Type(), r)
			}
		}
	}
	return true
}

// call looks at the arguments of functions of this module, and at where foreign ones say to give a client.Reader.
func (c *readers) call(n *ast.CallExpr) {
	tv := c.pkg.TypesInfo.Types[n.Fun]
	if tv.IsType() {
		c.convert(tv.Type, n.Args[0])
		return
	}
	s, ok := types.Unalias(tv.Type).Underlying().(*types.Signature)
	if !ok {
		return // A builtin.
	}
	f := c.callee(n)
	if s.Results().Len() == 1 && isReader(s.Results().At(0).Type()) && f != nil && f.Pkg() != nil && !within(f.Pkg().Path(), module) {
		if f.Name() != "GetAPIReader" {
			c.found = append(c.found, c.tree.problem(n.Pos(), "a client.Reader comes from %s, not from GetAPIReader", f.Name()))
		}
		c.seen++
	}
	if f != nil && f.Pkg() != nil && !within(f.Pkg().Path(), module) {
		return // What others read is not what decides.
	}
	if f != nil && c.cached[name(f)] != "" {
		delete(c.unseen, name(f))
		return
	}
	for i, arg := range n.Args {
		if i < s.Params().Len() {
			c.convert(s.Params().At(i).Type(), arg)
		}
	}
}

func (c *readers) callee(n *ast.CallExpr) *types.Func {
	switch fun := ast.Unparen(n.Fun).(type) {
	case *ast.Ident:
		f, _ := c.pkg.TypesInfo.Uses[fun].(*types.Func)
		return f
	case *ast.SelectorExpr:
		f, _ := c.pkg.TypesInfo.Uses[fun.Sel].(*types.Func)
		return f
	}
	return nil
}

func (c *readers) literal(n *ast.CompositeLit) {
	s, ok := c.pkg.TypesInfo.TypeOf(n).Underlying().(*types.Struct)
	if !ok {
		return
	}
	for i, e := range n.Elts {
		kv, keyed := e.(*ast.KeyValueExpr)
		if !keyed {
			c.convert(s.Field(i).Type(), e)
			continue
		}
		if id, ok := kv.Key.(*ast.Ident); ok {
			c.convert(c.pkg.TypesInfo.ObjectOf(id).Type(), kv.Value)
		}
	}
}

func (c *readers) enclosing(stack []ast.Node) *types.Signature {
	for i := len(stack) - 1; i >= 0; i-- {
		switch f := stack[i].(type) {
		case *ast.FuncLit:
			return c.pkg.TypesInfo.TypeOf(f).(*types.Signature)
		case *ast.FuncDecl:
			return c.pkg.TypesInfo.Defs[f.Name].(*types.Func).Signature()
		}
	}
	return nil
}

// convert is what happens to an expression where a value of type to is wanted.
func (c *readers) convert(to types.Type, e ast.Expr) {
	from := c.pkg.TypesInfo.TypeOf(e)
	if !isReader(to) || from == nil || isReader(from) || c.pkg.TypesInfo.Types[e].IsNil() {
		return
	}
	c.found = append(c.found, c.tree.problem(e.Pos(), "a %s becomes a client.Reader: only GetAPIReader gives one that is not cached", from))
}

func isReader(t types.Type) bool {
	n, ok := types.Unalias(t).(*types.Named)
	return ok && n.Obj().Name() == "Reader" && n.Obj().Pkg() != nil && n.Obj().Pkg().Path() == clientPackage
}
