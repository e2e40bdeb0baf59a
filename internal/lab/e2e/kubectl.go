package e2e

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
)

// kubectl runs kubectl on the management cluster, shows it, and returns what it prints, errors included.
func (e *E2E) kubectl(ctx context.Context, args ...string) (string, error) {
	return e.pipe(ctx, "", args...)
}

// apply a manifest.
func (e *E2E) apply(ctx context.Context, manifest string) error {
	_, err := e.pipe(ctx, manifest, "apply", "-f", "-")
	return err
}

func (e *E2E) pipe(ctx context.Context, stdin string, args ...string) (string, error) {
	e.sayf("      $ kubectl %s\n", strings.Join(args, " "))
	cmd := exec.CommandContext(ctx, e.lab.Kubectl, append([]string{"--kubeconfig", e.lab.Kubeconfig}, args...)...)
	cmd.Dir, cmd.Stdin = e.lab.Root(), strings.NewReader(stdin)
	text, err := cmd.CombinedOutput()
	for line := range strings.Lines(string(text)) {
		e.sayf("        %s\n", strings.TrimRight(line, "\n"))
	}
	if err != nil {
		return string(text), fmt.Errorf("cannot kubectl %s: %w: %s", args[0], err, strings.TrimSpace(string(text)))
	}
	return string(text), nil
}

// refused runs kubectl and wants it to be refused with every one of these words.
func (e *E2E) refused(ctx context.Context, words []string, args ...string) error {
	text, err := e.kubectl(ctx, args...)
	if err == nil {
		return fmt.Errorf("kubectl %s was not refused", strings.Join(args, " "))
	}
	return says(text, words...)
}
