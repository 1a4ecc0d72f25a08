from broker.cli.main import main

raise SystemExit(main())
