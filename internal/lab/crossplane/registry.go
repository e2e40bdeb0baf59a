package crossplane

import (
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"time"

	"github.com/google/go-containerregistry/pkg/registry"
)

// A Registry keeps images in memory and serves them on loopback.
type Registry struct {
	// Address such as "127.0.0.1:20001". Crossplane wants a dot in it, so it is no name.
	Address string

	server *http.Server
	ended  chan error
}

// headerTimeout ends connections that never ask for anything.
const headerTimeout = 10 * time.Second

func startRegistry() (*Registry, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // a literal address takes no look-up
	if err != nil {
		return nil, fmt.Errorf("cannot start the registry: %w", err)
	}
	r := &Registry{
		Address: listener.Addr().String(),
		server: &http.Server{
			Handler: registry.New(registry.Logger(log.New(io.Discard, "", 0))), ReadHeaderTimeout: headerTimeout,
		},
		ended: make(chan error, 1),
	}
	go func() { r.ended <- r.server.Serve(listener) }()
	return r, nil
}

func (r *Registry) stop() error {
	err := r.server.Close()
	if ended := <-r.ended; !errors.Is(ended, http.ErrServerClosed) {
		err = errors.Join(err, ended)
	}
	return err
}
