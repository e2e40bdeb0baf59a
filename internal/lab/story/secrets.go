package story

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// documents are the keys of Secrets that hold what is learned: the PKI, and the credentials of its cluster.
var documents = []string{"secrets.yaml", "kubeconfig", "talosconfig"}

// secretFields are the fields of a Talos secrets bundle, a talosconfig and a kubeconfig that hold secrets.
var secretFields = []string{
	"key", "client-key-data", "secret", "token", "bootstraptoken", "secretboxencryptionsecret", "aescbcencryptionsecret",
}

// privateKey is a private key that is not one of those looked for: as PEM, or as base64 of PEM. Its header begins with one
// of a few words, and base64 of each begins like this. The body belongs to it.
var privateKey = regexp.MustCompile(`-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----[^-]*|LS0tLS1CRUdJTi(BQUklWQVRF|BFQyBQUklWQVRF|BSU0EgUFJJVkFUR|BFRDI1NTE5IFBSSVZBVE|BFTkNSWVBURUQg)[A-Za-z0-9+/=]*`)

// machineConfig is a machine configuration with its join token not hidden.
var machineConfig = regexp.MustCompile(`(?s)machine:\s.{0,200}?\btoken: *"?[a-z0-9]{6}\.[a-z0-9]{16}\b`)

// joinToken is such a token wherever it is written as one.
var joinToken = regexp.MustCompile(`\btoken: *"?[a-z0-9]{6}\.[a-z0-9]{16}\b`)

// Secrets are texts that nobody may see, by what they are.
type Secrets map[string]string

// LearnFrom adds what is secret in the documents of a Secret, whichever of them it has.
func (t Secrets) LearnFrom(s *corev1.Secret) error {
	for _, key := range documents {
		if err := t.Learn(s.GetName()+"/"+key, s.Data[key]); err != nil {
			return err
		}
	}
	return nil
}

// Learn adds what is secret in a YAML document, named by the document and the path in it.
func (t Secrets) Learn(name string, document []byte) error {
	var root any
	if err := yaml.Unmarshal(document, &root); err != nil {
		return fmt.Errorf("cannot read %s as YAML", name) // The error may quote a secret.
	}
	t.walk(name, "", root)
	return nil
}

func (t Secrets) walk(path, field string, v any) {
	switch v := v.(type) {
	case map[string]any:
		for k, value := range v {
			t.walk(path+"."+k, k, value)
		}
	case []any:
		for _, value := range v {
			t.walk(path+"[]", field, value)
		}
	case string:
		if v != "" && slices.Contains(secretFields, strings.ToLower(field)) {
			t.add(path, v)
		}
	}
}

// add a text with what else it may be written as. Of a PEM, a line of its body is enough, however its lines are joined.
func (t Secrets) add(name, text string) {
	t[name] = text
	t[name+" in base64"] = base64.StdEncoding.EncodeToString([]byte(text))
	raw, err := base64.StdEncoding.DecodeString(text)
	if err != nil || !strings.Contains(string(raw), "-----BEGIN") {
		return
	}
	for line := range strings.Lines(string(raw)) {
		if line = strings.TrimSpace(line); len(line) > 40 && !strings.HasPrefix(line, "-----") {
			t[name+" as PEM"] = line
			return
		}
	}
}

// Find tells which secret is in a text, without showing it; empty if none is.
func (t Secrets) Find(text string) string {
	var found []string
	for name, secret := range t {
		if strings.Contains(text, secret) {
			found = append(found, name)
		}
	}
	switch {
	case len(found) > 0:
		return slices.Min(found)
	case privateKey.MatchString(text):
		return "a private key"
	case machineConfig.MatchString(text):
		return "a machine configuration with its token"
	}
	return ""
}

// FindIn looks at every text in an object, its keys included, and into those that are base64.
func (t Secrets) FindIn(object any) (path, secret string) {
	switch v := object.(type) {
	case map[string]any:
		for k, value := range v {
			if secret = t.Find(k); secret != "" {
				return "a key", secret
			}
			if path, secret = t.FindIn(value); secret != "" {
				return k + "." + path, secret
			}
		}
	case []any:
		for _, value := range v {
			if path, secret = t.FindIn(value); secret != "" {
				return path, secret
			}
		}
	case string:
		if secret = t.Find(v); secret != "" {
			return "", secret
		}
		if raw, err := base64.StdEncoding.DecodeString(v); err == nil {
			return "", t.Find(string(raw))
		}
		var inner any
		if strings.HasPrefix(v, "{") && json.Unmarshal([]byte(v), &inner) == nil {
			return t.FindIn(inner)
		}
	}
	return "", ""
}

// Hide replaces every secret in a text, and what looks like one that was never learned, as of a cluster that never came up.
func (t Secrets) Hide(text string) string {
	for _, secret := range t {
		text = strings.ReplaceAll(text, secret, "(hidden)")
	}
	return privateKey.ReplaceAllString(joinToken.ReplaceAllString(text, "token: (hidden)"), "(hidden)")
}
