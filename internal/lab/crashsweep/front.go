package crashsweep

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"time"

	"k8s.io/client-go/rest"

	"github.com/maesh/provider-ichor/internal/lab"
	"github.com/maesh/provider-ichor/internal/lab/controlplane"
)

// errDead is why an answer is dropped: whoever asked is dead.
var errDead = errors.New("whoever asked is dead")

// A front stands between the provider and a Kubernetes API, and tells a fuse each write before its answer goes back.
type front struct {
	listener net.Listener
	server   *http.Server
}

// serve begins to listen at an address of loopback.
func serve(ctx context.Context, address string, config *tls.Config, h http.Handler) (*front, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("cannot listen in front: %w", err)
	}
	f := &front{listener: l, server: &http.Server{
		Handler: h, TLSConfig: config, ReadHeaderTimeout: 10 * time.Second, ErrorLog: log.New(io.Discard, "", 0), // Those who die break connections.
	}}
	go func() {
		if config == nil {
			_ = f.server.Serve(l) // It ends with close, and says so.
			return
		}
		_ = f.server.ServeTLS(l, "", "") // As above.
	}()
	return f, nil
}

func (f *front) close() { _ = f.server.Close() } // Nobody needs what is cut off.

// management stands in front of a management cluster, whose past it can show. Only who has the certificate that it returns gets
// through.
func management(ctx context.Context, to *rest.Config, f *fuse, p *past) (*front, *rest.Config, error) {
	ca, err := controlplane.NewCA("front")
	if err != nil {
		return nil, nil, err
	}
	server, err := certificate(ca, controlplane.Leaf{CommonName: "front", IPs: []net.IP{net.IPv4(127, 0, 0, 1)}})
	if err != nil {
		return nil, nil, err
	}
	client, err := ca.Issue(controlplane.Leaf{CommonName: "provider"})
	if err != nil {
		return nil, nil, err
	}
	h, err := forward("management", to, f, p)
	if err != nil {
		return nil, nil, err
	}
	clients := x509.NewCertPool()
	clients.AppendCertsFromPEM(ca.Cert)
	s, err := serve(ctx, "127.0.0.1:0", &tls.Config{
		Certificates: []tls.Certificate{server}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: clients, MinVersion: tls.VersionTLS12,
	}, p.before(h))
	if err != nil {
		return nil, nil, err
	}
	return s, &rest.Config{
		Host:            "https://" + s.listener.Addr().String(),
		TLSClientConfig: rest.TLSClientConfig{CAData: ca.Cert, CertData: client.Cert, KeyData: client.Key},
	}, nil
}

func certificate(ca controlplane.KeyPair, leaf controlplane.Leaf) (tls.Certificate, error) {
	pair, err := ca.Issue(leaf)
	if err != nil {
		return tls.Certificate{}, err
	}
	return tls.X509KeyPair(pair.Cert, pair.Key)
}

// forward passes requests on, and drops the answer to one whose sender has died of it. A past, if there is one, is told what
// came of writes.
func forward(cluster string, to *rest.Config, f *fuse, p *past) (http.Handler, error) {
	at, err := url.Parse(to.Host)
	if err != nil {
		return nil, fmt.Errorf("cannot read the address of the %s cluster: %w", cluster, err)
	}
	transport, err := rest.TransportFor(to)
	if err != nil {
		return nil, fmt.Errorf("cannot reach the %s cluster: %w", cluster, err)
	}
	return &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(at)
			r.Out.Host = ""
			if change(r.In) != "" {
				r.Out.Header.Set("Accept", "application/json") // The past reads it, and clients take it, too.
			}
		},
		Transport:     living{transport, f},
		FlushInterval: -1, // Watches.
		ErrorLog:      log.New(io.Discard, "", 0),
		ModifyResponse: func(r *http.Response) error {
			what := change(r.Request)
			if what == "" || r.StatusCode/100 != 2 {
				return nil
			}
			if p != nil {
				if err := p.wrote(r); err != nil {
					return err
				}
			}
			if !f.wrote(cluster + ": " + what) {
				return errDead
			}
			return nil
		},
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	}, nil
}

// living sends nothing any more once its sender is dead.
type living struct {
	http.RoundTripper
	fuse *fuse
}

func (l living) RoundTrip(r *http.Request) (*http.Response, error) {
	if change(r) != "" && !l.fuse.alive() {
		return nil, errDead
	}
	return l.RoundTripper.RoundTrip(r)
}

// change says what a request changes, such as "PUT talosmachines/cp-1/status"; empty if nothing. Events and questions that
// are asked by a POST change nothing that anybody goes by.
func change(r *http.Request) string {
	switch r.Method {
	case http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete:
	default:
		return ""
	}
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	switch {
	case len(parts) > 3 && parts[0] == "apis": // apis/group/version/...
		if parts[1] == "authorization.k8s.io" || parts[1] == "authentication.k8s.io" {
			return ""
		}
		parts = parts[3:]
	case len(parts) > 2 && parts[0] == "api": // api/version/...
		parts = parts[2:]
	}
	if len(parts) > 2 && parts[0] == "namespaces" {
		parts = parts[2:]
	}
	if parts[0] == "events" {
		return ""
	}
	return r.Method + " " + strings.Join(parts, "/")
}

// calls is told by machines what they have carried out.
func calls(f *fuse) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var c lab.RPC
		if err := json.NewDecoder(r.Body).Decode(&c); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		f.wrote(c.Machine + ": " + c.Method[strings.LastIndexByte(c.Method, '/')+1:])
	})
}
