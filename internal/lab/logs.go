package lab

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// KeepLogs copies the logs of everything that runs to Options.Logs, each through clean, which takes out what must not be
// kept. It returns where they are.
func (l *Lab) KeepLogs(clean func(text string) string) (string, error) {
	err := filepath.WalkDir(l.Dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || filepath.Ext(path) != ".log" {
			return err
		}
		name, err := filepath.Rel(l.Dir, path)
		if err != nil {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		to := filepath.Join(l.o.Logs, strings.ReplaceAll(name, string(filepath.Separator), "-"))
		if err := os.MkdirAll(l.o.Logs, 0o755); err != nil {
			return err
		}
		return os.WriteFile(to, []byte(clean(string(text))), 0o600)
	})
	if err != nil {
		return "", fmt.Errorf("cannot keep the logs: %w", err)
	}
	return l.o.Logs, nil
}

// keepLogsOf keeps the logs of a lab that does not start, unless somebody interrupted it. No cluster has secrets yet.
func (l *Lab) keepLogsOf(ctx context.Context) error {
	if ctx.Err() != nil || l.Dir == "" {
		return nil //nolint:nilerr // Whoever interrupts wants no logs.
	}
	dir, err := l.KeepLogs(func(text string) string { return text })
	if err == nil {
		l.sayf("the logs are in %s", dir)
	}
	return err
}
