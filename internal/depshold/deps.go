// Package depshold keeps the versions of dependencies in go.mod until their users are written.
package depshold

import (
	_ "github.com/aws/aws-sdk-go-v2/config"
	_ "github.com/aws/aws-sdk-go-v2/credentials/stscreds"
	_ "github.com/aws/aws-sdk-go-v2/service/s3"
	_ "github.com/aws/aws-sdk-go-v2/service/sts"
	_ "github.com/cespare/xxhash/v2"
	_ "github.com/confluentinc/confluent-kafka-go/v2/kafka"
	_ "github.com/expr-lang/expr"
	_ "github.com/goccy/go-yaml"
	_ "github.com/google/go-cmp/cmp"
	_ "github.com/klauspost/compress/zstd"
	_ "github.com/prometheus/client_golang/prometheus/promhttp"
	_ "github.com/riferrei/srclient"
	_ "github.com/spf13/cobra"
	_ "github.com/twmb/avro/ocf"
	_ "github.com/twmb/franz-go/pkg/kfake"
	_ "github.com/twmb/franz-go/pkg/kgo"
	_ "github.com/twmb/franz-go/pkg/sr/srfake"
	_ "github.com/versity/versitygw/embedgw"
	_ "go.uber.org/zap"
	_ "golang.org/x/sync/errgroup"
)
