package talos

import (
	"regexp"
	"strings"
)

// Machines quote parts of a rejected configuration in their errors, and a configuration is full of keys and tokens. These
// patterns find what can be one; what they replace is worth less than a leak.
var (
	pemBlock = regexp.MustCompile(`(?s)-----BEGIN [^-]+-----.*?(-----END [^-]+-----|$)`)
	// longRun is base64 or hexadecimal of 24 bytes or more: keys, certificates and secretbox secrets.
	longRun = regexp.MustCompile(`[A-Za-z0-9+/_-]{32,}={0,2}`)
	// token is a bootstrap or trustd token.
	token = regexp.MustCompile(`\b[a-z0-9]{6}\.[a-z0-9]{16}\b`)
	// quotedScalar is how the YAML decoder quotes a value of the wrong type.
	quotedScalar = regexp.MustCompile("`[^`]*`")
	// keyValue is one line of the unknown keys that the configuration loader lists.
	keyValue = regexp.MustCompile(`(?m)^(\s*(?:- )*[A-Za-z0-9_./"'-]+:)[ \t]+\S.*$`)
	// listValue is an entry of a list among them.
	listValue = regexp.MustCompile(`(?m)^(\s*-)[ \t]+[^:\n]*$`)
)

const (
	redacted    = "***"
	unknownKeys = "unknown keys found during decoding:"
)

// scrub replaces everything in text that can be a secret.
func scrub(text string) string {
	if head, keys, ok := strings.Cut(text, unknownKeys); ok {
		keys = keyValue.ReplaceAllString(keys, "$1 "+redacted)
		keys = listValue.ReplaceAllString(keys, "$1 "+redacted)
		text = head + unknownKeys + keys
	}
	for _, p := range []*regexp.Regexp{pemBlock, token, quotedScalar} {
		text = p.ReplaceAllString(text, redacted)
	}
	return longRun.ReplaceAllStringFunc(text, func(run string) string {
		// Paths and image references are long too, and are what an operator needs to see. Nothing of a key looks like a
		// word followed by a slash more than by chance, so only runs with lower-case words between slashes are kept.
		if path.MatchString(run) {
			return run
		}
		return redacted
	})
}

// path is a run of lower-case words, joined by slashes, dashes or underscores, as in names of images, units and types.
var path = regexp.MustCompile(`^/?[a-z0-9]{1,15}([/_-]+[a-z0-9]{1,15})*/?$`)
