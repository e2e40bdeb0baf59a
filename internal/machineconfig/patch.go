package machineconfig

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	coreconfig "github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/configpatcher"
	"github.com/siderolabs/talos/pkg/machinery/config/container"
	"github.com/siderolabs/talos/pkg/machinery/config/types/v1alpha1"
	"go.yaml.in/yaml/v4"
)

// patch applies the patches in order. What they make of the configuration must be valid in the end, not in between.
func (in *Input) patch(c coreconfig.Provider) (coreconfig.Provider, error) {
	stages := []coreconfig.Provider{c}
	for _, p := range in.Patches {
		if len(bytes.TrimSpace(p.Data)) == 0 {
			return nil, &PatchError{Name: p.Name, Problem: "it is empty"}
		}
		next, err := apply(c, p)
		if err == nil {
			err = in.keeps(next)
		}
		if err != nil {
			return nil, &PatchError{Name: p.Name, Problem: problem(err, p.Data)}
		}
		stages, c = append(stages, next), next
	}
	if err := validate(c); err != nil {
		return nil, in.blame(stages, err)
	}
	return c, nil
}

// blame names the patch that made the configuration invalid: the last one before which it was valid.
func (in *Input) blame(stages []coreconfig.Provider, err error) error {
	guilty := len(in.Patches) - 1
	for guilty > 0 && validate(stages[guilty]) != nil {
		guilty--
	}
	var contents []byte
	for _, p := range in.Patches {
		contents = append(append(contents, "\n---\n"...), p.Data...)
	}
	return &PatchError{Name: in.Patches[guilty].Name, Problem: "the configuration is not valid with it: " + problem(err, contents)}
}

// apply one patch.
func apply(c coreconfig.Provider, p Patch) (coreconfig.Provider, error) {
	loaded, err := configpatcher.LoadPatch(p.Data)
	if err != nil {
		return nil, err
	}
	if merge, ok := loaded.(configpatcher.StrategicMergePatch); ok {
		return configpatcher.StrategicMerge(c, merge)
	}
	return applyOperations(c, loaded)
}

// An operationsError is an error of a JSON 6902 patch.
type operationsError struct{ error }

// wayOut follows the text of an operationsError.
const wayOut = "; a JSON 6902 patch changes the document with machine and cluster, use a strategic merge patch for the others"

// applyOperations applies a JSON 6902 patch to the main document. Its paths say nothing of documents, and so the machinery
// refuses it for a configuration of several, as those for Talos 1.12 and later are.
func applyOperations(c coreconfig.Provider, operations configpatcher.Patch) (coreconfig.Provider, error) {
	main := container.NewV1Alpha1(c.RawV1Alpha1())
	out, err := configpatcher.Apply(configpatcher.WithConfig(main), []configpatcher.Patch{operations})
	if err != nil {
		return nil, &operationsError{err}
	}
	patched, err := out.Config()
	if err != nil {
		return nil, &operationsError{err}
	}
	documents := patched.Clone().Documents()
	for _, d := range c.Documents() {
		if _, isMain := d.(*v1alpha1.Config); !isMain {
			documents = append(documents, d)
		}
	}
	return container.New(documents...)
}

// keeps returns an error if a patch changed what is declared elsewhere or belongs to the cluster: the program would take
// the machine for another one, or could not reach it any more.
func (in *Input) keeps(c coreconfig.Provider) error {
	main := c.RawV1Alpha1()
	if main == nil || main.MachineConfig == nil || main.ClusterConfig == nil {
		return errors.New("it removes machine or cluster from the configuration")
	}
	data, err := encode(c)
	if err != nil {
		return err
	}
	all, err := parse(data)
	if err != nil {
		return err
	}
	s, m, cl := in.Bundle.secrets, main.MachineConfig, main.ClusterConfig
	is := identityOf(all, find(all, mainDocument))
	for _, f := range []struct {
		name    string
		changed bool
	}{
		{"machine.type (set role instead)", is.Role != in.Role},
		{"the hostname (set hostname instead)", is.Hostname != in.Hostname},
		{"machine.token", m.MachineToken != s.TrustdInfo.Token},
		{"machine.ca", m.MachineCA == nil || !bytes.Equal(m.MachineCA.Crt, s.Certs.OS.Crt)},
		{"cluster.id", is.ClusterID != s.Cluster.ID},
		{"cluster.secret", cl.ClusterSecret != s.Cluster.Secret},
		{"cluster.token", cl.BootstrapToken != s.Secrets.BootstrapToken},
		{"cluster.ca", cl.ClusterCA == nil || !bytes.Equal(cl.ClusterCA.Crt, s.Certs.K8s.Crt)},
	} {
		if f.changed {
			return fmt.Errorf("it must not change %s", f.name)
		}
	}
	return in.withholds(all)
}

// withholds returns an error if the configuration of a worker holds a secret that only control planes may have.
func (in *Input) withholds(all []document) error {
	if in.Role != RoleWorker {
		return nil
	}
	secrets, _ := in.Bundle.secretValues()
	var found error
	leaves(bodies(all), nil, func(at path, v any) {
		s, _ := v.(string)
		for _, secret := range secrets {
			encoded := base64.StdEncoding.EncodeToString([]byte(secret))
			if strings.Contains(s, strings.TrimSpace(secret)) || strings.Contains(s, encoded) {
				found = fmt.Errorf("it gives a secret of control planes to a worker, in %s", at[1:])
			}
		}
	})
	return found
}

const unknownKeys = "unknown keys found during decoding:\n"

// problem describes what is wrong with a patch, without what the patch sets: that may come from a Secret.
func problem(err error, data []byte) string {
	var oe *operationsError
	if errors.As(err, &oe) {
		return problem(oe.error, data) + wayOut
	}
	if _, keys, ok := strings.Cut(err.Error(), unknownKeys); ok {
		return "Talos does not know " + keyNames(keys)
	}
	if !isYAML(data) {
		return "it is not YAML or JSON" + where(err)
	}
	return strings.Join(strings.Fields(hideContents(err.Error(), data)), " ")
}

// keyNames lists the keys in a text of YAML, without their values.
func keyNames(s string) string {
	var names []string
	for _, tree := range anyDocuments([]byte(s)) {
		names = appendKeys(names, tree, nil)
	}
	if len(names) == 0 {
		return "some of its keys"
	}
	return strings.Join(names, ", ")
}

func appendKeys(names []string, v any, at path) []string {
	m, ok := v.(map[string]any)
	if !ok || len(m) == 0 {
		return append(names, at.String())
	}
	for _, k := range slices.Sorted(maps.Keys(m)) {
		names = appendKeys(names, m[k], at.to(k))
	}
	return names
}

// anyDocuments reads whatever documents can be read.
func anyDocuments(data []byte) []any {
	var all []any
	for d := yaml.NewDecoder(bytes.NewReader(data)); ; {
		var tree any
		if err := d.Decode(&tree); err != nil {
			return all
		}
		all = append(all, tree)
	}
}

func isYAML(data []byte) bool {
	var tree any
	return yaml.NewDecoder(bytes.NewReader(data)).Decode(&tree) == nil
}
