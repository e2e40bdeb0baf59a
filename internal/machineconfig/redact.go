package machineconfig

import (
	"encoding/base64"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
)

const (
	hidden = "(hidden)"
	// minSecret is how long a hidden text must be to be looked for elsewhere: shorter ones occur by chance.
	minSecret = 8
	// maxShown is how long a shown value may be.
	maxShown = 160
)

// secretKeys end the names of fields that hold secrets, in lower case.
var secretKeys = []string{"token", "secret", "password", "passphrase", "privatekey", "presharedkey", "auth", "headers", "header"}

// opaque are the fields whose insides are anything that a user puts there, in lower case. They hold secrets sooner or later.
var opaque = []string{
	"env", "environment", "variables", "extraargs", "extrakernelargs", "files", "configfiles", "content", "contents",
	"inlinemanifests", "pods", "extraconfig", "credentialproviderconfig", "baseruntimespecoverrides", "parameters",
	"extratags", "configuration", "webhook", "auditpolicy", "config",
}

// registries is the field below which a field called config is not opaque.
const registries = "registries"

// isSecret tells whether the value at a path may be a secret, by where it is or by what it looks like. It errs towards
// secrets.
func isSecret(at path, v any) bool {
	for i, step := range at {
		step = strings.ToLower(step)
		if step == "key" || slices.ContainsFunc(secretKeys, func(s string) bool { return strings.HasSuffix(step, s) }) {
			return true
		}
		if slices.Contains(opaque, step) && (i == 0 || !strings.EqualFold(at[i-1], registries)) {
			return true
		}
	}
	s, ok := v.(string)
	return ok && looksSecret(s)
}

// looksSecret tells whether a text is a key, or an address with credentials in it.
func looksSecret(s string) bool {
	if decoded, err := base64.StdEncoding.DecodeString(s); err == nil && strings.Contains(string(decoded), "-----BEGIN") {
		s = string(decoded)
	}
	if strings.Contains(s, "PRIVATE KEY") {
		return true
	}
	u, err := url.Parse(s)
	return err == nil && u.Host != "" && (u.User != nil || u.RawQuery != "")
}

// secretsIn returns every text in a tree that may be a secret and is long enough to be found elsewhere, longest first.
func secretsIn(trees ...any) []string {
	var all []string
	for _, tree := range trees {
		leaves(tree, nil, func(at path, v any) {
			if s, ok := v.(string); ok && isSecret(at, v) && len(s) >= minSecret {
				all = append(all, s)
			}
		})
	}
	return longestFirst(all)
}

func longestFirst(all []string) []string {
	slices.SortFunc(all, func(a, b string) int {
		if len(a) != len(b) {
			return len(b) - len(a)
		}
		return strings.Compare(a, b)
	})
	return slices.Compact(all)
}

// scrub hides texts wherever they occur, plain or quoted.
func scrub(s string, texts []string) string {
	for _, t := range texts {
		s = strings.ReplaceAll(s, t, hidden)
		quoted := fmt.Sprintf("%q", t)
		s = strings.ReplaceAll(s, quoted[1:len(quoted)-1], hidden)
	}
	return s
}

// show writes a value for people.
func show(at path, v any) string {
	switch s, isText := v.(string); {
	case isSecret(at, v):
		return hidden
	case !isText:
		return fmt.Sprint(v)
	case len(s) > maxShown || strings.Contains(s, "\n"):
		return fmt.Sprintf("(text of %d bytes)", len(s))
	default:
		return fmt.Sprintf("%q", s)
	}
}

// named are the fields of a patch whose values are names and not contents.
var named = []string{"apiVersion", "kind", "name", "op", "path", "from", "$patch", "type"}

// contentsOf returns every text that a patch sets, longest first.
func contentsOf(data []byte) []string {
	var all []string
	visit := func(at path, v any) {
		if s, ok := v.(string); ok && len(s) > 3 && !slices.Contains(named, at[len(at)-1]) {
			all = append(all, s, strings.TrimSpace(s))
		}
	}
	for _, tree := range anyDocuments(data) {
		leaves(plain(tree), path{"patch"}, visit)
	}
	return longestFirst(all)
}

var quotedByYAML = regexp.MustCompile("`[^`]*`")

// hideContents makes a text that is about a patch safe to show: neither what the patch sets nor pieces of it are in it.
func hideContents(s string, data []byte) string {
	return scrub(quotedByYAML.ReplaceAllString(s, hidden), contentsOf(data))
}
