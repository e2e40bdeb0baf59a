package demo

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/maesh/provider-ichor/apis/v1alpha1"
)

// example is a file that the documentation shows as well.
func example(name string) string { return filepath.Join("examples", "cluster", name) }

// kubectl runs kubectl on the management cluster, shows it, and returns what it prints, errors included.
func (d *Demo) kubectl(ctx context.Context, args ...string) (string, error) {
	d.sayf("      $ kubectl %s\n", strings.Join(args, " "))
	return d.run(ctx, "", append([]string{"--kubeconfig", d.lab.Kubeconfig}, args...))
}

// apply declares an object from a manifest of the demo's own.
func (d *Demo) apply(ctx context.Context, manifest string) error {
	d.sayf("      $ kubectl apply -f -\n%s", indent(manifest))
	_, err := d.run(ctx, manifest, []string{"--kubeconfig", d.lab.Kubeconfig, "apply", "-f", "-"})
	return err
}

// kubectlDemo runs kubectl on the cluster that the demo makes, with the kubeconfig of its connection Secret.
func (d *Demo) kubectlDemo(ctx context.Context, stdin string, args ...string) (string, error) {
	s := &corev1.Secret{}
	if err := d.object(ctx, connectionSecret, s); err != nil {
		return "", fmt.Errorf("cannot get the connection Secret: %w", err)
	}
	path := filepath.Join(d.lab.Dir, "demo.kubeconfig")
	if err := os.WriteFile(path, s.Data["kubeconfig"], 0o600); err != nil {
		return "", fmt.Errorf("cannot write the kubeconfig of the connection Secret: %w", err)
	}
	d.sayf("      $ kubectl --kubeconfig demo.kubeconfig %s\n%s", strings.Join(args, " "), indent(stdin))
	return d.run(ctx, stdin, append([]string{"--kubeconfig", path}, args...))
}

func (d *Demo) run(ctx context.Context, stdin string, args []string) (string, error) {
	cmd := exec.CommandContext(ctx, d.lab.Kubectl, args...)
	cmd.Dir, cmd.Stdin = d.lab.Root(), strings.NewReader(stdin)
	text, err := cmd.CombinedOutput()
	d.sayf("%s", indent(string(text)))
	if err != nil {
		return string(text), fmt.Errorf("kubectl %s: %w: %s", args[2], err, strings.TrimSpace(string(text)))
	}
	return string(text), nil
}

func indent(text string) string {
	var out strings.Builder
	for line := range strings.Lines(text) {
		fmt.Fprintf(&out, "        %s\n", strings.TrimRight(line, "\n"))
	}
	return out.String()
}

// refused runs kubectl and wants it to be refused with every one of these words.
func (d *Demo) refused(ctx context.Context, words []string, args ...string) error {
	text, err := d.kubectl(ctx, args...)
	if err == nil {
		return fmt.Errorf("kubectl %s was not refused", strings.Join(args, " "))
	}
	return says(text, words...)
}

// says wants every one of these words in a text.
func says(text string, words ...string) error {
	for _, w := range words {
		if !strings.Contains(text, w) {
			return fmt.Errorf("it does not say %q, but: %s", w, text)
		}
	}
	return nil
}

func (d *Demo) allow(ctx context.Context, kind string, names ...string) error {
	args := append([]string{"annotate", kind}, names...)
	_, err := d.kubectl(ctx, append(args, v1alpha1.AnnotationAllowDelete+"=true", "--overwrite")...)
	return err
}

// remove allows the delete of machines and asks for it.
func (d *Demo) remove(ctx context.Context, names ...string) error {
	if err := d.allow(ctx, "talosmachine", names...); err != nil {
		return err
	}
	args := append([]string{"delete", "talosmachine"}, names...)
	_, err := d.kubectl(ctx, append(args, "--wait=false")...)
	return err
}
