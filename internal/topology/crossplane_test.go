package topology

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/crossplane/crossplane-runtime/v2/pkg/logging"
	fnv1 "github.com/crossplane/function-sdk-go/proto/v1"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"github.com/maesh/provider-ichor/internal/lab/tools"
)

const (
	root     = "../.."
	examples = root + "/examples/topology"
)

// A bench runs Crossplane's own programs on what the configuration package holds.
type bench struct {
	t         *testing.T
	cli, core string
	functions string
}

// newBench builds Crossplane if it is not there, and serves the function.
func newBench(t *testing.T) *bench {
	t.Helper()
	paths, err := tools.Ensure(t.Context(), os.Stderr, tools.Crossplane, tools.CrossplaneCLI)
	if err != nil {
		t.Fatal(err)
	}
	var config net.ListenConfig
	listener, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	fnv1.RegisterFunctionRunnerServiceServer(server, NewFunction(logging.NewNopLogger()))
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-served; err != nil {
			t.Errorf("the function was not served: %v", err)
		}
	})
	b := &bench{t: t, cli: paths[tools.CrossplaneCLI.Name], core: paths[tools.Crossplane.Name], functions: filepath.Join(t.TempDir(), "functions.yaml")}
	function := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"package": "function-ichor-topology"}}}
	function.SetAPIVersion("pkg.crossplane.io/v1")
	function.SetKind("Function")
	function.SetName("function-ichor-topology")
	function.SetAnnotations(map[string]string{
		"render.crossplane.io/runtime":                    "Development",
		"render.crossplane.io/runtime-development-target": listener.Addr().String(),
	})
	b.write(b.functions, function)
	return b
}

// render lets Crossplane's reconciler compose a topology once, and returns all that it would apply, the topology first.
func (b *bench) render(xr *unstructured.Unstructured, observed []*unstructured.Unstructured) (string, []*unstructured.Unstructured) {
	b.t.Helper()
	dir := b.t.TempDir()
	xrFile, observedFile := filepath.Join(dir, "xr.yaml"), filepath.Join(dir, "observed.yaml")
	b.write(xrFile, xr)
	composition := filepath.Join(root, "package", "configuration", strings.ToLower(xr.GetKind()), "composition.yaml")
	args := []string{"composition", "render", xrFile, composition, b.functions, "--crossplane-binary=" + b.core,
		"--xrd=" + filepath.Join(filepath.Dir(composition), "definition.yaml")}
	if len(observed) > 0 {
		b.write(observedFile, observed...)
		args = append(args, "--observed-resources="+observedFile, "--required-resources="+observedFile)
	}
	out := b.run(args...)
	return out, b.read(strings.NewReader(out))
}

// run Crossplane's CLI, away from whatever the person who runs the test has configured.
func (b *bench) run(args ...string) string {
	b.t.Helper()
	cmd := exec.CommandContext(b.t.Context(), b.cli, args...)
	cmd.Env = []string{"HOME=" + b.t.TempDir(), "PATH=/nonexistent"}
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		b.t.Fatalf("crossplane %s: %v\n%s%s", strings.Join(args, " "), err, stdout.String(), stderr.String())
	}
	return stdout.String()
}

func (b *bench) write(path string, objects ...*unstructured.Unstructured) {
	b.t.Helper()
	var out bytes.Buffer
	for _, o := range objects {
		raw, err := yaml.Marshal(o.Object)
		if err != nil {
			b.t.Fatal(err)
		}
		fmt.Fprintf(&out, "---\n%s", raw)
	}
	if err := os.WriteFile(path, out.Bytes(), 0o600); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) read(r io.Reader) []*unstructured.Unstructured {
	b.t.Helper()
	var out []*unstructured.Unstructured
	for decoder := utilyaml.NewYAMLOrJSONDecoder(r, 4096); ; {
		o := &unstructured.Unstructured{}
		err := decoder.Decode(&o.Object)
		switch {
		case err == io.EOF: //nolint:errorlint // the decoder returns it as it is
			return out
		case err != nil:
			b.t.Fatal(err)
		case len(o.Object) > 0:
			out = append(out, o)
		}
	}
}

// topology of an example. The one of a claim is what Crossplane makes of it.
func (b *bench) topology(example string) *unstructured.Unstructured {
	b.t.Helper()
	raw, err := os.ReadFile(filepath.Join(examples, example+".yaml"))
	if err != nil {
		b.t.Fatal(err)
	}
	o := b.read(bytes.NewReader(raw))[0]
	if o.GetKind() != "TalosTopologyClaim" {
		return o
	}
	put(o, map[string]any{"apiVersion": o.GetAPIVersion(), "kind": o.GetKind(), "name": o.GetName(), "namespace": o.GetNamespace()}, "spec", "claimRef")
	unstructured.RemoveNestedField(o.Object, "spec", "writeConnectionSecretToRef")
	o.SetKind("XTalosTopology")
	o.SetLabels(map[string]string{"crossplane.io/composite": o.GetName() + "-x7k2p", "crossplane.io/claim-name": o.GetName(), "crossplane.io/claim-namespace": o.GetNamespace()})
	o.SetNamespace("")
	o.SetName(o.GetName() + "-x7k2p")
	return o
}

// golden compares with what is written down, or writes it down with -rewrite.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", "render", name+".yaml")
	if f := flag.Lookup("rewrite"); f != nil && f.Value.String() == "true" {
		if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s: -want, +got:\n%s", path, diff)
	}
}

func exampleNames(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(examples, "*.yaml"))
	if err != nil || len(files) < 10 {
		t.Fatalf("cannot list the examples (%d): %v", len(files), err)
	}
	names := make([]string, 0, len(files))
	for _, file := range files {
		names = append(names, strings.TrimSuffix(filepath.Base(file), ".yaml"))
	}
	return names
}

// TestRenderExamples lets Crossplane's reconciler compose every example.
func TestRenderExamples(t *testing.T) {
	b := newBench(t)
	for _, name := range exampleNames(t) {
		out, _ := b.render(b.topology(name), nil)
		golden(t, name, out)
	}
}

// TestRenderRemoval takes the replacement of a control plane through Crossplane's reconciler, a pass at a time.
func TestRenderRemoval(t *testing.T) {
	b := newBench(t)
	c := newCore(t)
	for _, pass := range []struct{ example, name string }{
		{"three-control-planes", "removal/1-settled"},
		{"replacement", "removal/2-waits-for-cp-4"},
		{"replacement", "removal/3-allows-cp-2"},
		{"replacement", "removal/4-drops-cp-2"},
	} {
		var observed []*unstructured.Unstructured
		for _, name := range c.names() {
			observed = append(observed, c.objects[name])
		}
		out, objects := b.render(b.topology(pass.example), observed)
		golden(t, pass.name, out)
		c.objects = map[string]*unstructured.Unstructured{}
		for _, o := range objects[1:] {
			c.objects[o.GetAnnotations()[annotationResourceName]] = o
		}
		c.settle()
	}
	if c.objects["machine-cp-2"] != nil || c.objects["machine-cp-4"] == nil || len(c.objects) != 6 {
		t.Errorf("after the last pass there are %q", c.names())
	}
}

// TestValidateExamples lets Crossplane's CLI hold the examples against the schemas of the packages, and the packages against
// the schemas of Crossplane.
func TestValidateExamples(t *testing.T) {
	b := newBench(t)
	const image = "crossplane.example.org/crossplane/crossplane"
	version := "v2.4.0"
	cache := t.TempDir()
	b.coreSchemas(filepath.Join(cache, image+"@"+version, "package.yaml"))
	configuration := filepath.Join(root, "package", "configuration")
	schemas := []string{filepath.Join(root, "package", "crds")}
	resources := []string{examples}
	for _, kind := range []string{"talostopology", "xtalostopology"} {
		schemas = append(schemas, filepath.Join(configuration, kind, "definition.yaml"))
		resources = append(resources, filepath.Join(configuration, kind))
	}
	out := b.run("resource", "validate", strings.Join(schemas, ","), strings.Join(resources, ","),
		"--cache-dir="+cache, "--crossplane-image="+image+":"+version, "--error-on-missing-schemas")
	want := fmt.Sprintf("Total %d resources: 0 missing schemas, %d success cases, 0 failure cases", len(exampleNames(t))+4, len(exampleNames(t))+4)
	if !strings.Contains(out, want) {
		t.Errorf("want %q, got:\n%s", want, out)
	}
}

// coreSchemas puts the CRDs of Crossplane's core where its CLI would keep them.
func (b *bench) coreSchemas(path string) {
	b.t.Helper()
	cmd := exec.CommandContext(context.WithoutCancel(b.t.Context()), "go", "list", "-m", "-f", "{{.Dir}}", tools.Crossplane.Module)
	cmd.Dir = filepath.Join(root, tools.Crossplane.Dir)
	module, err := cmd.Output()
	if err != nil {
		b.t.Fatalf("cannot find the source of Crossplane: %v", err)
	}
	files, err := filepath.Glob(filepath.Join(strings.TrimSpace(string(module)), "cluster", "crds", "*.yaml"))
	if err != nil || len(files) == 0 {
		b.t.Fatalf("cannot find the CRDs of Crossplane: %v", err)
	}
	var all bytes.Buffer
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			b.t.Fatal(err)
		}
		fmt.Fprintf(&all, "---\n%s\n", raw)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		b.t.Fatal(err)
	}
	if err := os.WriteFile(path, all.Bytes(), 0o600); err != nil {
		b.t.Fatal(err)
	}
}
