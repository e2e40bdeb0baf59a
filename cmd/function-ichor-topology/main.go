// Command function-ichor-topology serves the composition function of TalosTopologies to Crossplane. It must never decide
// anything: it holds flags and wiring.
package main

import (
	"fmt"
	"os"

	"github.com/alecthomas/kingpin/v2"
	function "github.com/crossplane/function-sdk-go"
	"google.golang.org/grpc/health"

	"github.com/maesh/provider-ichor/internal/commandline"
	"github.com/maesh/provider-ichor/internal/topology"
	"github.com/maesh/provider-ichor/internal/version"
)

// megabyte is the unit of --max-recv-message-size, as in every function.
const megabyte = 1 << 20

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "function-ichor-topology:", err)
		os.Exit(1)
	}
}

// run serves until the process is ended: a function keeps nothing that would have to be put away.
func run(args []string) error {
	f, err := parse(args)
	if err != nil {
		return err
	}
	log, err := function.NewLogger(f.debug)
	if err != nil {
		return fmt.Errorf("cannot make a logger: %w", err)
	}
	return function.Serve(topology.NewFunction(log),
		function.Listen(f.network, f.address),
		function.MTLSCertificates(f.tlsCertsDir),
		function.Insecure(f.insecure),
		function.MaxRecvMessageSize(f.maxRecvMessageSize*megabyte),
		function.WithHealthServer(health.NewServer()),
		function.WithMetricsServer(f.metricsAddress),
	)
}

// flags are what the function can be told. Crossplane starts it without any, and says where its certificates are in the
// environment.
type flags struct {
	debug, insecure                               bool
	network, address, tlsCertsDir, metricsAddress string
	maxRecvMessageSize                            int
}

func parse(args []string) (*flags, error) {
	f := &flags{}
	app := kingpin.New("function-ichor-topology", "The composition function that turns a TalosTopology into a TalosCluster and its TalosMachines.").DefaultEnvars()
	app.Version(version.Version)
	app.HelpFlag.Short('h')
	app.Flag("debug", "Log what was decided.").Short('d').BoolVar(&f.debug)
	app.Flag("network", "Network to listen on.").Default("tcp").StringVar(&f.network)
	app.Flag("address", "Address to serve gRPC at.").Default(":9443").StringVar(&f.address)
	app.Flag("tls-certs-dir", "Directory with tls.crt and tls.key of this server, and with ca.crt, which clients must be signed by.").Envar("TLS_SERVER_CERTS_DIR").StringVar(&f.tlsCertsDir)
	app.Flag("insecure", "Serve without TLS, for tests and for rendering on one machine. Crossplane always uses TLS.").BoolVar(&f.insecure)
	// A request holds every machine of a topology twice. The usual 4 MB would do for some hundred of them.
	app.Flag("max-recv-message-size", "Largest request, in MB.").Default("32").IntVar(&f.maxRecvMessageSize)
	app.Flag("metrics-address", "Address that metrics are served at; empty serves none.").Default(":8080").StringVar(&f.metricsAddress)
	commandline.NameFlags(app)
	_, err := app.Parse(args)
	return f, err
}
