// Command processor runs event-time pipelines over live Kafka and over replays of archived segments.
package main

import (
	"context"
	"os"

	"golang.org/x/sync/errgroup"

	"tapedeck.dev/tapedeck/processor/runtime"
	"tapedeck.dev/tapedeck/shared/service"
)

func main() {
	root := service.Command("processor", "Run event-time pipelines over live Kafka and over replays; the same logs give the same bytes", keys(), run)
	root.AddCommand(validateCommand())
	os.Exit(service.Main(root, os.Args[1:]))
}

func run(ctx context.Context, f *service.Frame) error {
	w, err := wire(ctx, f)
	if err != nil {
		return err
	}
	defer w.close()
	return serve(ctx, f, w.runtime)
}

// serve runs the live pipelines and the HTTP server; the end of either ends the other.
func serve(ctx context.Context, f *service.Frame, rt *runtime.Runtime) error {
	if err := rt.Register(f.Metrics); err != nil {
		return err
	}
	rt.Routes(f.Mux)
	f.Health, f.Ready, f.Status = rt.Health, rt.Ready, rt.Status
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return rt.Run(ctx) })
	g.Go(func() error { return f.Serve(ctx) })
	err := g.Wait()
	rt.Close() // no request is running any more
	return err
}
