package archtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/tools/go/packages"
)

const module = "github.com/maesh/provider-ichor"

// A tree is everything that the checks look at.
type tree struct {
	root string
	fset *token.FileSet
	// packages of the module, typed, without tests.
	packages []*packages.Package
	// graph has every package that the module needs, by import path, with its imports and nothing else.
	graph map[string]*packages.Package
	// files are all Go files of the module, tests and generated ones included, by path relative to the root.
	files map[string]file
}

// A file is one Go file, parsed up to its imports.
type file struct {
	lines     int
	generated bool
	test      bool
	syntax    *ast.File
}

var (
	product     *tree
	loadProduct sync.Once
)

// asIs is the tree as it is. It is read once for all tests.
func asIs(t *testing.T) *tree {
	t.Helper()
	loadProduct.Do(func() { product = load(t, nil) })
	if product == nil {
		t.Fatal("the tree could not be loaded")
	}
	return product
}

// load reads the tree, with the given files laid over it.
func load(t *testing.T, over map[string]string) *tree {
	t.Helper()
	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	overlay := map[string][]byte{}
	for name, text := range over {
		overlay[filepath.Join(root, filepath.FromSlash(name))] = []byte(text)
	}
	tr := &tree{root: root, fset: token.NewFileSet(), graph: map[string]*packages.Package{}, files: map[string]file{}}
	config := packages.Config{
		Context: t.Context(), Dir: root, Fset: tr.fset, Overlay: overlay, BuildFlags: raceFlag(),
		Mode: packages.NeedName | packages.NeedFiles | packages.NeedImports | packages.NeedTypes | packages.NeedSyntax | packages.NeedTypesInfo,
	}
	tr.packages = mustLoad(t, config)
	config.Mode = packages.NeedName | packages.NeedImports | packages.NeedDeps
	packages.Visit(mustLoad(t, config), nil, func(p *packages.Package) { tr.graph[p.PkgPath] = p })
	tr.parse(t, overlay)
	return tr
}

func mustLoad(t *testing.T, config packages.Config) []*packages.Package {
	t.Helper()
	pkgs, err := packages.Load(&config, "./...")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range pkgs {
		for _, e := range p.Errors {
			t.Fatalf("cannot load %s: %v", p.PkgPath, e)
		}
	}
	return pkgs
}

// raceFlag has dependencies taken from the build cache that the tests themselves filled, or a thousand packages would be
// compiled once more.
func raceFlag() []string {
	info, ok := debug.ReadBuildInfo()
	if ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"}) {
		return []string{"-race"}
	}
	return nil
}

func (t *tree) parse(tb testing.TB, overlay map[string][]byte) {
	tb.Helper()
	contents := map[string][]byte{}
	err := filepath.WalkDir(t.root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "testdata" || d.Name() == "hack" || strings.HasPrefix(d.Name(), ".")):
			return fs.SkipDir
		case d.IsDir() || filepath.Ext(path) != ".go":
			return nil
		}
		contents[path], err = os.ReadFile(path) //nolint:gosec // A file of the tree.
		return err
	})
	if err != nil {
		tb.Fatal(err)
	}
	for path, text := range overlay {
		contents[path] = text
	}
	for path, text := range contents {
		syntax, err := parser.ParseFile(t.fset, path, text, parser.ImportsOnly|parser.ParseComments)
		if err != nil {
			tb.Fatal(err)
		}
		rel, err := filepath.Rel(t.root, path)
		if err != nil {
			tb.Fatal(err)
		}
		t.files[filepath.ToSlash(rel)] = file{
			lines: strings.Count(string(text), "\n"), generated: ast.IsGenerated(syntax), test: strings.HasSuffix(path, "_test.go"), syntax: syntax,
		}
	}
}

// short is an import path without the module.
func short(path string) string { return strings.TrimPrefix(path, module+"/") }

// within tells whether a path is one of the given ones, or below it.
func within(path string, roots ...string) bool {
	return slices.ContainsFunc(roots, func(r string) bool { return path == r || strings.HasPrefix(path, r+"/") })
}

// name of a function or method: package.Type.Method, without the module, whether the receiver is a pointer or not.
func name(f *types.Func) string {
	pkg := ""
	if f.Pkg() != nil {
		pkg = short(f.Pkg().Path()) + "."
	}
	recv := f.Signature().Recv()
	if recv == nil {
		return pkg + f.Name()
	}
	typ := types.Unalias(recv.Type())
	if p, ok := typ.(*types.Pointer); ok {
		typ = types.Unalias(p.Elem())
	}
	if n, ok := typ.(*types.Named); ok {
		return pkg + n.Obj().Name() + "." + f.Name()
	}
	return pkg + "interface." + f.Name()
}

// uses calls fn with every function, method or constant that a package uses, and with the name of the function that uses
// it. A function literal belongs to the function around it.
func uses(p *packages.Package, fn func(id *ast.Ident, used types.Object, by string)) {
	for _, syntax := range p.Syntax {
		for _, decl := range syntax.Decls {
			by := short(p.PkgPath) + ".var"
			if d, ok := decl.(*ast.FuncDecl); ok {
				by = name(p.TypesInfo.Defs[d.Name].(*types.Func))
			}
			ast.Inspect(decl, func(n ast.Node) bool {
				if id, ok := n.(*ast.Ident); ok {
					if used := p.TypesInfo.Uses[id]; used != nil {
						fn(id, used, by)
					}
				}
				return true
			})
		}
	}
}
