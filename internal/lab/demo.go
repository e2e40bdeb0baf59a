package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/maesh/provider-ichor/apis/v1alpha1"
)

// A Demo shows the main job on a lab, and checks each step of it from outside of the product.
type Demo struct {
	lab  *Lab
	out  io.Writer
	kube client.Client

	held, all int
}

// A check is one promise that the demo shows.
type check struct {
	says string
	hold func(context.Context) error
}

// RunDemo shows the main job and returns an error unless every check held.
func RunDemo(ctx context.Context, l *Lab, out io.Writer) error {
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		return fmt.Errorf("cannot make a scheme: %w", err)
	}
	kube, err := client.New(l.Config(), client.Options{Scheme: scheme})
	if err != nil {
		return fmt.Errorf("cannot make a client: %w", err)
	}
	d := &Demo{lab: l, out: out, kube: kube}
	checks := d.checks()
	d.all = len(checks)
	var failed error
	for _, c := range checks {
		began := time.Now()
		if failed = c.hold(ctx); failed != nil {
			fmt.Fprintf(out, "FAIL  %s: %v\n", c.says, failed)
			break // What follows builds on it.
		}
		d.held++
		fmt.Fprintf(out, "ok    %s (%s)\n", c.says, time.Since(began).Round(100*time.Millisecond))
	}
	fmt.Fprintf(out, "demo: %d of %d checks held\n", d.held, d.all)
	return failed
}

// kubectl runs kubectl on the management cluster and returns what it prints, errors included.
func (d *Demo) kubectl(ctx context.Context, args ...string) (string, error) {
	fmt.Fprintf(d.out, "      $ kubectl %s\n", strings.Join(args, " "))
	cmd := exec.CommandContext(ctx, d.lab.Kubectl, append([]string{"--kubeconfig", d.lab.Kubeconfig}, args...)...)
	cmd.Dir = d.lab.o.Root
	text, err := cmd.CombinedOutput()
	for line := range strings.Lines(string(text)) {
		fmt.Fprintf(d.out, "        %s\n", strings.TrimRight(line, "\n"))
	}
	if err != nil {
		return string(text), fmt.Errorf("kubectl %s: %w: %s", args[0], err, strings.TrimSpace(string(text)))
	}
	return string(text), nil
}

// refused runs kubectl and wants it to be refused with every one of these words.
func (d *Demo) refused(ctx context.Context, words []string, args ...string) error {
	text, err := d.kubectl(ctx, args...)
	if err == nil {
		return fmt.Errorf("kubectl %s was not refused", strings.Join(args, " "))
	}
	for _, w := range words {
		if !strings.Contains(text, w) {
			return fmt.Errorf("the refusal does not say %q", w)
		}
	}
	return nil
}

// mutations are the calls that changed, or could have changed, a machine.
func (d *Demo) mutations(ctx context.Context) ([]RPC, error) {
	all, err := d.lab.Fleet.RPCs(ctx, 0)
	if err != nil {
		return nil, err
	}
	var out []RPC
	for _, r := range all {
		if r.Mutating {
			out = append(out, r)
		}
	}
	return out, nil
}

func (d *Demo) machine(ctx context.Context, name string) (*v1alpha1.TalosMachine, error) {
	m := &v1alpha1.TalosMachine{}
	err := d.kube.Get(ctx, client.ObjectKey{Namespace: "default", Name: name}, m)
	return m, err
}

// workload reaches the cluster that the demo makes, with the kubeconfig from its connection Secret.
func (d *Demo) workload(ctx context.Context) (kubernetes.Interface, error) {
	s := &corev1.Secret{}
	if err := d.kube.Get(ctx, client.ObjectKey{Namespace: "default", Name: "demo-connection"}, s); err != nil {
		return nil, fmt.Errorf("cannot get the connection Secret: %w", err)
	}
	cfg, err := clientcmd.RESTConfigFromKubeConfig(s.Data["kubeconfig"])
	if err != nil {
		return nil, fmt.Errorf("cannot read the kubeconfig of the connection Secret: %w", err)
	}
	return kubernetes.NewForConfig(cfg)
}

func example(name string) string { return filepath.Join("examples", "cluster", name) }
